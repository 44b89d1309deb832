"""The parameters of `BigSVC`, validated and converted to the options of a fit."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from numbers import Integral, Real
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight

from bigsvm.config import EXACT_UP_TO, HOT_SET, TOLERANCE, ReweightConfig, Size
from bigsvm.core.stop_rule import StopRule
from bigsvm.core.variance import scale_gamma
from bigsvm.estimator.fit import SMALL, FitOptions
from bigsvm.estimator.rows import Rows
from bigsvm.kernels import NAMES, Kernel
from bigsvm.solvers.reweight import Reweighting
from bigsvm.training.weights import check_all_classes, check_weights

if TYPE_CHECKING:
    from bigsvm.estimator.classifier import BigSVC


def fit_options(
    estimator: BigSVC,
    rows: Rows,
    labels: tuple[np.ndarray, np.ndarray],
    sample_weight: Any,
    margin_weight: Any,
) -> FitOptions:
    """Validate the parameters of an estimator, also against the rows to train on.

    Parameters
    ----------
    estimator : BigSVC
    rows : Rows
        The rows to train on.
    labels : (classes, codes)
        The class labels, and for each row the position of its class among them.
    sample_weight, margin_weight : (n,) array or None
        As passed to `fit`.

    Returns
    -------
    FitOptions
    """
    check_parameters(estimator)
    n, (classes, codes) = rows.shape[0], labels
    sample_weight = weights_of_rows("sample_weight", sample_weight, n)
    margin = weights_of_rows("margin_weight", margin_weight, n)
    C = C_of_rows(estimator, classes, codes, sample_weight)
    check_all_classes(C, margin, codes, tuple(classes.tolist()))
    algorithm, schedule = estimator.algorithm, estimator.schedule
    if algorithm == "auto":
        algorithm = "fw" if n <= SMALL else "mfw"
    if schedule == "auto":
        schedule = "exact" if estimator.absolute_tol is not None and n <= EXACT_UP_TO else "block"
    if margin is None and algorithm == "wsvm":
        raise ValueError("the algorithm wsvm needs margin_weight; give it to fit")
    if margin is not None and algorithm not in ("wsvm", "rwsvm"):
        raise ValueError(f"the algorithm {algorithm} takes no margin_weight; use wsvm or rwsvm")
    initial = 0
    if estimator.random_state is not None:
        initial = int(check_random_state(estimator.random_state).randint(n))
    gamma = _gamma(estimator, rows, sample_weight)
    return FitOptions(
        Kernel(estimator.kernel, gamma, float(estimator.coef0), int(estimator.degree)),
        C,
        "mfw" if algorithm == "mfw" else "fw",
        schedule,
        stop_rule(estimator),
        validate_parameter("memory_limit", Annotated[Size, Field(gt=0)], estimator.memory_limit),
        initial,
        estimator.max_iter if estimator.max_iter > 0 else 2**62,
        HOT_SET,
        margin=margin,
        intercept=float(estimator.intercept),
        reweighting=_reweighting(estimator, len(classes)) if algorithm == "rwsvm" else None,
    )


def _reweighting(estimator: BigSVC, n_classes: int) -> Reweighting:
    if n_classes > 2:
        raise ValueError(
            f"the algorithm rwsvm is for two classes, and y has {n_classes}; wrap it in "
            "sklearn.multiclass.OneVsRestClassifier"
        )
    how = validate_parameter("reweight", ReweightConfig, estimator.reweight or {})
    return Reweighting(int(estimator.rounds), **how.model_dump())


def weights_of_rows(name: str, weight: Any, n: int) -> np.ndarray | None:
    """Validate the argument `name` of `fit`: one weight per row, or one number for all rows."""
    if weight is None:
        return None
    values = np.asarray(weight)
    if values.ndim == 0:
        values = np.full(n, values)
    if values.shape != (n,):
        raise ValueError(
            f"{name} has shape {values.shape}, and there are {n} rows; pass one weight per row"
        )
    if values.dtype.kind not in "fiub":
        raise ValueError(f"{name} holds {values.dtype}, not numbers")
    if not values.any():
        raise ValueError(f"{name}: every weight is zero; at least one must be positive")
    return check_weights(values, name)


def C_of_rows(
    estimator: BigSVC, classes: np.ndarray, codes: np.ndarray, sample_weight: np.ndarray | None
) -> float | np.ndarray:
    """C times the sample and class weights: one value per row, or one for all.

    Parameters
    ----------
    estimator : BigSVC
        Has C and `class_weight`.
    classes : (n_classes,) array
    codes : (n,) int
        The position of each row's class among `classes`.
    sample_weight : (n,) float64 or None

    Returns
    -------
    float or (n,) float64 array
    """
    if sample_weight is None and estimator.class_weight is None:
        return float(estimator.C)
    C = np.full(len(codes), float(estimator.C))
    if sample_weight is not None:
        C *= sample_weight
    if estimator.class_weight is not None:
        factors = compute_class_weight(estimator.class_weight, classes=classes, y=classes[codes])
        C *= check_weights(factors, "class_weight")[codes]
    return C


def stop_rule(estimator: BigSVC) -> StopRule:
    """The stop rule that `tol` or `absolute_tol` asks for."""
    if estimator.absolute_tol is not None:
        return StopRule(absolute=float(estimator.absolute_tol))
    return StopRule(relative=float(estimator.tol))


def check_parameters(estimator: BigSVC) -> None:
    """Raise a ValueError for parameters that are invalid whatever the rows are."""
    choices = {
        "kernel": NAMES,
        "algorithm": ("auto", "mfw", "fw", "wsvm", "rwsvm"),
        "schedule": ("auto", "exact", "block"),
    }
    for name, known in choices.items():
        if getattr(estimator, name) not in known:
            raise ValueError(f"{name}={getattr(estimator, name)!r}: choose one of {known}")
    _check_number(estimator, "C", Real, lambda v: 0 < v < np.inf, "a number above 0")
    _check_number(estimator, "tol", Real, lambda v: 0 < v < 1, "a number above 0 and below 1")
    if estimator.absolute_tol is not None:
        _check_number(
            estimator, "absolute_tol", Real, lambda v: 0 < v < np.inf, "a number above 0, or None"
        )
        if estimator.tol != TOLERANCE:
            raise ValueError("set tol (relative to the margin) or absolute_tol, not both")
    _check_number(estimator, "intercept", Real, lambda v: 0 <= v < np.inf, "a number, 0 or more")
    _check_number(estimator, "coef0", Real, np.isfinite, "a number")
    _check_number(estimator, "degree", Integral, lambda v: 1 <= v <= 20, "an integer from 1 to 20")
    _check_number(estimator, "rounds", Integral, lambda v: v >= 1, "an integer, 1 or more")
    _check_number(estimator, "n_iter_no_change", Integral, lambda v: v >= 1, "1 or more")
    _check_number(
        estimator,
        "max_iter",
        Integral,
        lambda v: v >= 1 or v == -1,
        "1 or more, or -1 for no limit",
    )
    if estimator.callback is not None and not callable(estimator.callback):
        raise ValueError(f"callback={estimator.callback!r}: must be a function, or None")


def _check_number(
    estimator: BigSVC, name: str, kind: type, valid: Callable[[Any], Any], requirement: str
) -> None:
    value = getattr(estimator, name)
    if not isinstance(value, kind) or not valid(value):
        raise ValueError(f"{name}={value!r}: must be {requirement}")


def _gamma(estimator: BigSVC, rows: Rows, sample_weight: np.ndarray | None) -> float:
    """The gamma of the kernel, from `sigma` or `gamma`."""
    if estimator.sigma is not None:
        if estimator.kernel not in ("rbf", "laplacian"):
            raise ValueError(
                f"sigma: applies to rbf and laplacian kernels, not to {estimator.kernel}"
            )
        # Outside of this range, gamma would not fit into float32.
        _check_number(
            estimator, "sigma", Real, lambda v: 1e-15 <= v <= 1e15, "a number from 1e-15 to 1e15"
        )
        laplacian = estimator.kernel == "laplacian"
        return 1 / (estimator.sigma if laplacian else 2 * estimator.sigma**2)
    if isinstance(estimator.gamma, str) and estimator.gamma in ("scale", "auto"):
        variance = rows.variance(sample_weight) if estimator.gamma == "scale" else 1.0
        return scale_gamma(rows.shape[1], variance)
    _check_number(
        estimator, "gamma", Real, lambda v: 0 < v < np.inf, '"scale", "auto" or a number above 0'
    )
    return float(estimator.gamma)


@cache
def _adapter(kind: Any) -> TypeAdapter:
    return TypeAdapter(kind)


def validate_parameter(name: str, kind: Any, value: Any) -> Any:
    """Validate a value by one of the config's types."""
    try:
        return _adapter(kind).validate_python(value)
    except ValidationError as mistake:
        raise ValueError(f"{name}={value!r}: {mistake.errors()[0]['msg']}") from None
