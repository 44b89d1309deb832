"""The calibration of `BigSVC`, by the decision values of rows that a fit has not seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold

from bigsvm.estimator.out_of_core import is_out_of_core
from bigsvm.models.calibration import METHODS, Calibration, fit_calibration

if TYPE_CHECKING:
    from bigsvm.estimator.classifier import BigSVC

FOLDS = 5


def check_calibration(estimator: BigSVC, X: Any) -> None:
    """Raise a ValueError for a `calibration` that is unknown, or that streamed rows rule out."""
    method = estimator.calibration
    if method is not None and method not in METHODS:
        raise ValueError(f"calibration={method!r}: choose one of {METHODS}, or None")
    if method is not None and is_out_of_core(X) and not isinstance(X, np.memmap):
        raise ValueError(
            f"calibration={method!r}: needs rows in memory, to fit folds of them; calibrate the "
            "saved model instead: python -m bigsvm.calibrate MODEL --on FILE"
        )


def cross_validated_calibration(
    estimator: BigSVC, X: Any, codes: np.ndarray, sample_weight: Any, margin_weight: Any
) -> Calibration:
    """Fit the estimator to folds of the rows, and a calibration to the decisions on the others.

    Parameters
    ----------
    estimator : BigSVC
        Fitted to all rows.
    X : (n, d) array or CSR array
    codes : (n,) int
        The position of each row's class among `classes_`.
    sample_weight, margin_weight : (n,) array, float or None
        As passed to `fit`.

    Returns
    -------
    Calibration
    """
    assert estimator.calibration is not None
    fewest = int(np.bincount(codes).min())
    if fewest < 2:
        raise ValueError("calibration: needs two rows of every class, to fit folds of the rows")
    many = len(estimator.classes_) > 2
    decision = np.empty((len(codes), len(estimator.classes_)) if many else len(codes))
    plain = clone(estimator)
    plain.set_params(calibration=None, callback=None, warm_start=False)
    plain.set_params(algorithm=estimator.algorithm_)
    if hasattr(plain, "set_callbacks"):
        plain.set_callbacks()  # none: they are for the fit to all rows
    dense = isinstance(X, np.ndarray)  # a part of a memory map is held in memory
    y = estimator.classes_[codes]
    split = StratifiedKFold(min(FOLDS, fewest), shuffle=True, random_state=0)
    given = [
        None if weight is None else np.broadcast_to(np.asarray(weight, float), len(codes))
        for weight in (sample_weight, margin_weight)
    ]
    for rows, others in split.split(codes, codes):
        weights = [weight if weight is None else weight[rows] for weight in given]
        plain.fit(np.asarray(X[rows]) if dense else X[rows], y[rows], *weights)
        decision[others] = plain.decision_function(np.asarray(X[others]) if dense else X[others])
    about = {"on": f"{split.n_splits} folds of the training rows", "rows": len(codes)}
    classes = estimator.classes_.tolist()
    return fit_calibration(decision, codes, classes, estimator.calibration, given[0], about)
