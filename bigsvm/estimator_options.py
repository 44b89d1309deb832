"""The parameters of `BigSVC`, checked and brought to what a solver takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import TypeAdapter, ValidationError
from sklearn.utils import check_random_state

from bigsvm.config import Size
from bigsvm.dense import variance
from bigsvm.fit import FitOptions
from bigsvm.kernels import NAMES, Kernel
from bigsvm.solvers import EXACT_UP_TO

if TYPE_CHECKING:
    from bigsvm.estimator import BigSVC


def fit_options(given: BigSVC, X: Any) -> FitOptions:
    """The parameters of an estimator, checked against themselves and the rows X."""
    chosen = {"kernel": NAMES, "algorithm": ("mfw", "fw")}
    chosen["schedule"] = ("auto", "exact", "block")
    for name, known in chosen.items():
        if getattr(given, name) not in known:
            raise ValueError(f"{name}={getattr(given, name)!r}: choose one of {known}")
    for name in ("C", "tol"):
        if not 0 < getattr(given, name) < np.inf:
            raise ValueError(f"{name}={getattr(given, name)!r}: must be above 0")
    if not 1 <= given.degree <= 20:
        raise ValueError(f"degree={given.degree!r}: must be from 1 to 20")
    if given.max_iter != -1 and given.max_iter < 1:
        raise ValueError(f"max_iter={given.max_iter!r}: must be 1 or more, or -1 for no limit")
    n = X.shape[0]
    schedule = given.schedule
    if schedule == "auto":
        schedule = "exact" if n <= EXACT_UP_TO else "block"
    initial = 0
    if given.random_state is not None:
        initial = int(check_random_state(given.random_state).randint(n))
    kernel = Kernel(given.kernel, _rate(given, X), float(given.coef0), int(given.degree))
    memory = checked("memory_limit", Size, given.memory_limit)
    return FitOptions(
        kernel, float(given.C), given.algorithm, schedule, float(given.tol), memory, initial
    )


def _rate(given: BigSVC, X: Any) -> float:
    """The number that stands for sigma or gamma."""
    if given.sigma is not None:
        if given.kernel not in ("rbf", "laplacian"):
            raise ValueError(f"sigma: is of rbf and laplacian kernels, not of {given.kernel}")
        if not 0 < given.sigma < np.inf:
            raise ValueError(f"sigma={given.sigma!r}: must be above 0")
        rate = given.sigma if given.kernel == "laplacian" else 2 * given.sigma**2
        return 1 / rate
    if isinstance(given.gamma, str):
        if given.gamma not in ("scale", "auto"):
            raise ValueError(f'gamma={given.gamma!r}: choose "scale", "auto" or a number')
        spread = variance(X) if given.gamma == "scale" else 1.0
        return 1 / (X.shape[1] * spread) if spread > 0 else 1.0
    if not 0 < given.gamma < np.inf:
        raise ValueError(f"gamma={given.gamma!r}: must be above 0")
    return float(given.gamma)


def checked(name: str, kind: Any, value: Any) -> Any:
    """A value as one of the config's own types reads it."""
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as mistake:
        raise ValueError(f"{name}={value!r}: {mistake.errors()[0]['msg']}") from None
