"""The parameters of `BigSVC`, checked and brought to what a solver takes."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError
from sklearn.utils import check_random_state

from bigsvm.config import EXACT_UP_TO, HOT_SET, TOLERANCE, ReweightConfig, Size
from bigsvm.core.stop_rule import StopRule
from bigsvm.estimator.fit import SMALL, FitOptions
from bigsvm.estimator.rows import Rows
from bigsvm.estimator.weights import C_of_rows, weights_of_rows
from bigsvm.kernels import NAMES, Kernel
from bigsvm.solvers.reweight import Reweighting
from bigsvm.training.weights import check_all_classes

if TYPE_CHECKING:
    from bigsvm.estimator.classifier import BigSVC


def fit_options(
    given: BigSVC,
    rows: Rows,
    labels: tuple[np.ndarray, np.ndarray],
    sample_weight: Any,
    margin_weight: Any,
) -> FitOptions:
    """The parameters of an estimator, checked against themselves and the rows.

    Parameters
    ----------
    given : BigSVC
    rows : Rows
        To train on.
    labels : (classes, which)
        The class labels, and the class of each row by its place among them.
    sample_weight, margin_weight : (n,) array or None
        As given to `fit`.

    Returns
    -------
    FitOptions
    """
    check_parameters(given)
    n, (classes, which) = rows.shape[0], labels
    sample_weight = weights_of_rows("sample_weight", sample_weight, n)
    margin = weights_of_rows("margin_weight", margin_weight, n)
    C = C_of_rows(given, classes, which, sample_weight)
    check_all_classes(C, margin, which, tuple(classes.tolist()))
    algorithm, schedule = given.algorithm, given.schedule
    if algorithm == "auto":
        algorithm = "fw" if n <= SMALL else "mfw"
    if schedule == "auto":
        schedule = "exact" if given.absolute_tol is not None and n <= EXACT_UP_TO else "block"
    if margin is None and algorithm == "wsvm":
        raise ValueError("the algorithm wsvm needs margin_weight; give it to fit")
    if margin is not None and algorithm not in ("wsvm", "rwsvm"):
        raise ValueError(f"the algorithm {algorithm} has no margin_weight; take wsvm or rwsvm")
    reweighting = None
    if algorithm == "rwsvm":
        if len(classes) > 2:
            raise ValueError(
                f"the algorithm rwsvm is for two classes, and y has {len(classes)}; wrap it in "
                "sklearn.multiclass.OneVsRestClassifier"
            )
        how = checked("reweight", ReweightConfig, given.reweight or {})
        reweighting = Reweighting(int(given.rounds), **how.model_dump())
    initial = 0
    if given.random_state is not None:
        initial = int(check_random_state(given.random_state).randint(n))
    rate = _rate(given, rows, sample_weight)
    return FitOptions(
        Kernel(given.kernel, rate, float(given.coef0), int(given.degree)),
        C,
        "mfw" if algorithm == "mfw" else "fw",
        schedule,
        stop_rule(given),
        checked("memory_limit", Annotated[Size, Field(gt=0)], given.memory_limit),
        initial,
        given.max_iter if given.max_iter > 0 else 2**62,
        HOT_SET,
        margin=margin,
        intercept=float(given.intercept),
        reweighting=reweighting,
    )


def stop_rule(given: BigSVC) -> StopRule:
    """When a fit has converged."""
    if given.absolute_tol is not None:
        return StopRule(absolute=float(given.absolute_tol))
    return StopRule(relative=float(given.tol))


def check_parameters(given: BigSVC) -> None:
    """Refuse parameters that are wrong whatever the rows are."""
    chosen = {
        "kernel": NAMES,
        "algorithm": ("auto", "mfw", "fw", "wsvm", "rwsvm"),
        "schedule": ("auto", "exact", "block"),
    }
    for name, known in chosen.items():
        if getattr(given, name) not in known:
            raise ValueError(f"{name}={getattr(given, name)!r}: choose one of {known}")
    _check_number(given, "C", Real, lambda v: 0 < v < np.inf, "a number above 0")
    _check_number(given, "tol", Real, lambda v: 0 < v < 1, "a number above 0 and below 1")
    if given.absolute_tol is not None:
        fits = lambda v: 0 < v < np.inf  # noqa: E731
        _check_number(given, "absolute_tol", Real, fits, "a number above 0, or None")
        if given.tol != TOLERANCE:
            raise ValueError("give tol (relative to the margin) or absolute_tol, not both")
    _check_number(given, "intercept", Real, lambda v: 0 <= v < np.inf, "a number, 0 or more")
    _check_number(given, "coef0", Real, np.isfinite, "a number")
    _check_number(given, "degree", Integral, lambda v: 1 <= v <= 20, "an integer from 1 to 20")
    _check_number(given, "rounds", Integral, lambda v: v >= 1, "an integer, 1 or more")
    _check_number(
        given, "max_iter", Integral, lambda v: v >= 1 or v == -1, "1 or more, or -1 for no limit"
    )
    if given.callback is not None and not callable(given.callback):
        raise ValueError(f"callback={given.callback!r}: must be a function, or None")


def _check_number(
    given: BigSVC, name: str, kind: type, fits: Callable[[Any], Any], words: str
) -> None:
    value = getattr(given, name)
    if not isinstance(value, kind) or not fits(value):
        raise ValueError(f"{name}={value!r}: must be {words}")


def _rate(given: BigSVC, rows: Rows, sample_weight: np.ndarray | None) -> float:
    """The number that stands for sigma or gamma."""
    if given.sigma is not None:
        if given.kernel not in ("rbf", "laplacian"):
            raise ValueError(f"sigma: is of rbf and laplacian kernels, not of {given.kernel}")
        # Beyond these, gamma would leave the range of float32.
        fits = lambda v: 1e-15 <= v <= 1e15  # noqa: E731
        _check_number(given, "sigma", Real, fits, "a number from 1e-15 to 1e15")
        rate = given.sigma if given.kernel == "laplacian" else 2 * given.sigma**2
        return 1 / rate
    if isinstance(given.gamma, str) and given.gamma in ("scale", "auto"):
        variance = rows.variance(sample_weight) if given.gamma == "scale" else 1.0
        return 1 / (rows.shape[1] * variance) if variance > 0 else 1.0
    _check_number(
        given, "gamma", Real, lambda v: 0 < v < np.inf, '"scale", "auto" or a number above 0'
    )
    return float(given.gamma)


def checked(name: str, kind: Any, value: Any) -> Any:
    """A value as one of the config's own types reads it."""
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as mistake:
        raise ValueError(f"{name}={value!r}: {mistake.errors()[0]['msg']}") from None
