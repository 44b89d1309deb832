"""How much each row counts in a fit of `BigSVC`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.class_weight import compute_class_weight

from bigsvm.training.weights import checked

if TYPE_CHECKING:
    from bigsvm.estimator.classifier import BigSVC


def weights_of_rows(name: str, given: Any, n: int) -> np.ndarray | None:
    """One weight a row, as they were given to `fit` under a name; an error where they are not.

    A number alone is that of all rows, as everywhere in scikit-learn.
    """
    if given is None:
        return None
    values = np.asarray(given)
    if values.ndim == 0:
        values = np.full(n, values)
    if values.shape != (n,):
        raise ValueError(f"{name} has shape {values.shape}, and there are {n} rows; give one a row")
    if values.dtype.kind not in "fiub":
        raise ValueError(f"{name} holds {values.dtype}, not numbers")
    if not values.any():
        raise ValueError(f"{name}: every weight is zero; some row must have one above")
    return checked(values, name)


def C_of_rows(
    given: BigSVC, classes: np.ndarray, which: np.ndarray, sample_weight: np.ndarray | None
) -> float | np.ndarray:
    """The C of each row, or one for all.

    Parameters
    ----------
    given : BigSVC
        Says C and `class_weight`.
    classes : (n_classes,) array
    which : (n,) int
        The class of each row, by its place among `classes`.
    sample_weight : (n,) float64 or None

    Returns
    -------
    float or (n,) float64 array
    """
    if sample_weight is None and given.class_weight is None:
        return float(given.C)
    C = np.full(len(which), float(given.C))
    if sample_weight is not None:
        C *= sample_weight
    if given.class_weight is not None:
        factors = compute_class_weight(given.class_weight, classes=classes, y=classes[which])
        C *= checked(factors, "class_weight")[which]
    return C
