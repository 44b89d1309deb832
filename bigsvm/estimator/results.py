"""The results of a fit of `BigSVC`: attributes, warm starts, and the `Model` made from them."""

from __future__ import annotations

import warnings
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from bigsvm.backends import Backend
from bigsvm.core.labels import to_label
from bigsvm.estimator.fit import FitOptions, FitResult
from bigsvm.models.model import Model

if TYPE_CHECKING:
    from bigsvm.estimator.classifier import BigSVC


def warm_starts(estimator: BigSVC, n: int, classes: np.ndarray) -> np.ndarray | None:
    """The coefficients of the last fit, if a warm start is possible."""
    last: np.ndarray | None = getattr(estimator, "_alpha", None)
    if not estimator.warm_start or last is None or last.shape[1] != n:
        return None
    return last if np.array_equal(estimator.classes_, classes) else None


def set_results(
    estimator: BigSVC,
    fits: list[FitResult],
    codes: np.ndarray,
    backend: Backend,
    options: FitOptions,
) -> None:
    """Set the attributes of a fitted estimator; warn if it did not converge, or is useless."""
    estimator._alpha = np.array([result.alpha for result in fits]) if estimator.warm_start else None
    estimator._kernel = options.kernel
    estimator.algorithm_ = (
        options.algorithm if estimator.algorithm == "auto" else estimator.algorithm
    )
    coef = np.array([result.coef for result in fits])
    estimator.support_ = np.flatnonzero(coef.any(axis=0))
    estimator.support_vectors_ = backend.gather(estimator.support_)
    estimator.n_support_ = np.bincount(codes[estimator.support_], minlength=len(estimator.classes_))
    estimator.dual_coef_ = coef[:, estimator.support_]
    estimator.intercept_ = options.intercept * estimator.dual_coef_.sum(axis=1)
    estimator.n_iter_ = np.array([result.iterations for result in fits])
    estimator.gap_ = np.array([result.gap for result in fits])
    estimator.relative_gap_ = np.array([result.relative_gap for result in fits])
    estimator.passes_ = np.array([result.passes for result in fits])
    estimator.kernel_values_ = backend.kernel_values.total
    estimator.status_ = [result.status for result in fits]
    if unfinished := set(estimator.status_) - {"converged", "callback", "early_stopping"}:
        warnings.warn(
            f"the fit stopped before convergence ({', '.join(sorted(unfinished))}) at a gap of "
            f"{estimator.gap_.max():.1e}, {estimator.relative_gap_.max():.1e} of the margin, where "
            f"{options.stop_rule} was asked for"
            + ("; are the features scaled?" if "max_iter" in unfinished else ""),
            ConvergenceWarning,
            stacklevel=4,
        )
    if fits[0].useless is not None:
        warnings.warn(fits[0].useless, ConvergenceWarning, stacklevel=4)


def as_model(estimator: BigSVC) -> Model:
    """The `Model` of a fitted estimator; see `BigSVC.to_model`."""
    names = getattr(estimator, "feature_names_in_", None)
    about = {
        "algorithm": estimator.algorithm_,
        "C": float(estimator.C),
        "iteration": int(estimator.n_iter_.sum()),
        "relative_gap": float(estimator.relative_gap_.max()),
        "margin": 1.0,
        "feature_names": None if names is None else [str(name) for name in names],
    }
    two = len(estimator.classes_) == 2
    return Model(
        estimator.support_vectors_,
        estimator.dual_coef_[0] if two else estimator.dual_coef_,
        estimator.support_,
        asdict(estimator._kernel),
        tuple(to_label(label) for label in estimator.classes_),
        estimator.scaling_,
        about,
        float(estimator.intercept_[0]) if two else tuple(estimator.intercept_.tolist()),
        calibration=None if estimator.calibration is None else estimator.calibration_,
    )
