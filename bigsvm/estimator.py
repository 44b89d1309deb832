"""`BigSVC`, the solver as a scikit-learn classifier."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from bigsvm.backends.in_memory import InMemoryBackend
from bigsvm.config import Duration
from bigsvm.ctrl_c import noted_ctrl_c
from bigsvm.dense import dense_rows
from bigsvm.errors import UserError
from bigsvm.estimator_options import checked, fit_options
from bigsvm.fit import Fitted, fit_signs
from bigsvm.kernels import Kernel, block_of, products

if TYPE_CHECKING:
    from bigsvm.model import Model
    from bigsvm.solvers.state import State

ROWS_AT_A_TIME = 16_384
SECONDS_BETWEEN_LINES = 1.0


@dataclass(frozen=True)
class Progress:
    """What a callback is told.

    Attributes
    ----------
    label
        The class that is trained against the others.
    iteration, passes : int
        Steps so far, and passes over the data.
    gap : float
        Training ends when it is `tol` or less.
    seconds : float
        Since `fit` began.
    """

    label: Any
    iteration: int
    passes: int
    gap: float
    seconds: float


class BigSVC(ClassifierMixin, BaseEstimator):
    """Sparse kernel SVM, trained by Frank-Wolfe methods.

    The L2-SVM without an intercept. More than two classes are trained one against the rest.

    Parameters
    ----------
    C : float, default=1.0
        Larger: fewer training errors.
    kernel : {"rbf", "laplacian", "linear", "poly"}, default="rbf"
    sigma : float, optional
        The width of an rbf or laplacian kernel, instead of gamma: gamma = 1 / (2 sigma^2), and
        1 / sigma for laplacian.
    gamma : {"scale", "auto"} or float, default="scale"
        As in SVC: "scale" is 1 / (n_features * X.var()), "auto" 1 / n_features.
    coef0, degree : float, int
        Of the poly kernel, (gamma x.z + coef0)^degree.
    algorithm : {"mfw", "fw"}, default="mfw"
        "mfw" keeps a working set that only grows, and needs fewer support vectors.
    schedule : {"auto", "exact", "block"}, default="auto"
        "exact" up to 20,000 rows, "block" beyond.
    tol : float, default=1e-5
        Stop when the pairwise gap is no larger.
    max_iter : int, default=1_000_000
        For each class; -1 for no limit. "block" looks at it after every pass only.
    time_limit : float or str, optional
        Seconds, or like "90s", "2h30m"; for the whole fit.
    memory_limit : int or str, default="1GiB"
        Bytes for kernel values.
    random_state : int, RandomState or None, default=None
        Chooses the row to start from; None takes the first.
    verbose : bool, default=False
        Print a line a second.
    warm_start : bool, default=False
        Go on from the coefficients of the last fit, if that had as many rows and the same classes.
    callback : callable, optional
        Called with a `Progress` after every step (or pass); a true answer ends the fit.

    Attributes
    ----------
    classes_ : (n_classes,) array
    support_ : (n_support,) int64 array
        Rows that are a support vector of some class, ascending.
    support_vectors_ : (n_support, n_features) float32 array
    dual_coef_ : (1 or n_classes, n_support) float64 array
        In units of the margin: a decision value of 1 is at the margin of its class.
    n_iter_ : (1 or n_classes,) int array
    gap_ : (1 or n_classes,) float array
        At the end, under a gradient computed from the coefficients alone.
    status_ : list of str
        Of each class: converged, max_iter, time_limit, callback or interrupted.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Notes
    -----
    Ctrl-C ends the fit with the model so far, which is usable, and a warning; twice, it raises
    KeyboardInterrupt as usual.

    Examples
    --------
    >>> from bigsvm import BigSVC
    >>> BigSVC(sigma=1.0).fit([[0.0], [1.0], [4.0]], ["a", "a", "b"]).predict([[3.5]])
    array(['b'], dtype='<U1')
    """

    def __init__(
        self,
        C: float = 1.0,
        *,
        kernel: str = "rbf",
        sigma: float | None = None,
        gamma: str | float = "scale",
        coef0: float = 0.0,
        degree: int = 3,
        algorithm: str = "mfw",
        schedule: str = "auto",
        tol: float = 1e-5,
        max_iter: int = 1_000_000,
        time_limit: float | str | None = None,
        memory_limit: int | str = "1GiB",
        random_state: Any = None,
        verbose: bool = False,
        warm_start: bool = False,
        callback: Callable[[Progress], object] | None = None,
    ) -> None:
        self.C = C
        self.kernel = kernel
        self.sigma = sigma
        self.gamma = gamma
        self.coef0 = coef0
        self.degree = degree
        self.algorithm = algorithm
        self.schedule = schedule
        self.tol = tol
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.memory_limit = memory_limit
        self.random_state = random_state
        self.verbose = verbose
        self.warm_start = warm_start
        self.callback = callback

    def fit(self, X: Any, y: Any) -> BigSVC:
        """Train on rows X (n, d), dense or sparse, and their labels y (n,)."""
        began = time.monotonic()
        X, y = validate_data(
            self, X, y, accept_sparse="csr", dtype=(np.float64, np.float32), ensure_min_samples=1
        )
        check_classification_targets(y)
        classes, which = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"y holds one class only, {classes[0]!r}; BigSVC needs two or more")
        options = fit_options(self, X)
        backend = InMemoryBackend(dense_rows(X), options.kernel)
        tasks = range(1, 2) if len(classes) == 2 else range(len(classes))
        starts = self._starts(len(y), classes)
        fits: list[Fitted] = []
        with noted_ctrl_c() as interrupted:
            for k in tasks:
                signs = np.where(which == k, 1, -1).astype(np.int8)
                left = self._time_left(began, len(tasks) - len(fits))
                stop = self._stop(classes[k], began, left, interrupted)
                try:
                    fits.append(fit_signs(backend, signs, options, stop, starts[len(fits)]))
                except UserError as mistake:
                    raise ValueError(str(mistake)) from mistake
        self.classes_ = classes
        self._keep(fits, tasks, which, backend, options.kernel)
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """(n,) for two classes, above 0 for the second; (n, n_classes) for more."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=(np.float64, np.float32), reset=False)
        coef = np.ascontiguousarray(self.dual_coef_.T)
        decision = np.zeros((coef.shape[1], X.shape[0]))
        for start in range(0, X.shape[0], ROWS_AT_A_TIME):
            rows = dense_rows(X[start : start + ROWS_AT_A_TIME])
            block = block_of(rows, start)
            products(self._kernel, block, self.support_vectors_, coef, decision)
        return decision[0] if len(self.classes_) == 2 else decision.T

    def predict(self, X: Any) -> np.ndarray:
        """The class of each row."""
        decision = self.decision_function(X)
        if decision.ndim == 1:
            return self.classes_[(decision > 0).astype(int)]
        return self.classes_[decision.argmax(axis=1)]

    def to_model(self) -> Model:
        """The two-class model for `save`, `bigsvm.export` and `bigsvm.predict`."""
        from bigsvm.labels import plain
        from bigsvm.model import Model

        check_is_fitted(self)
        if len(self.classes_) != 2:
            raise ValueError(f"a model file holds two classes, and these are {len(self.classes_)}")
        below, above = (plain(label) for label in self.classes_)
        names = getattr(self, "feature_names_in_", None)
        about = {
            "algorithm": self.algorithm,
            "C": float(self.C),
            "iteration": int(self.n_iter_[0]),
            "feature_names": None if names is None else [str(name) for name in names],
        }
        return Model(
            self.support_vectors_, self.dual_coef_[0], self.support_, asdict(self._kernel),
            (below, above), None, about,
        )  # fmt: skip

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _starts(self, n: int, classes: np.ndarray) -> list[np.ndarray | None]:
        """Where each task goes on from."""
        last: Any = getattr(self, "_alpha", None)
        goes_on = self.warm_start and last is not None and last.shape[1] == n
        if goes_on and np.array_equal(self.classes_, classes):
            return list(last)
        return [None] * len(classes)

    def _time_left(self, began: float, tasks: int) -> float:
        """When this task must end, of `tasks` that are still to do."""
        if self.time_limit is None:
            return np.inf
        now = time.monotonic()
        rest = began + checked("time_limit", Duration, self.time_limit) - now
        return now + rest / tasks

    def _stop(
        self, label: Any, began: float, deadline: float, interrupted: Callable[[], bool]
    ) -> Callable[[State], str | None]:
        last, told_at = began, 0

        def stop(state: State) -> str | None:
            nonlocal last, told_at
            now = time.monotonic()
            if self.verbose and now - last >= SECONDS_BETWEEN_LINES:
                last = now
                print(f"[BigSVC] {label}: iteration {state.iteration:,}, gap {state.gap:.2e}")
            if self.callback is not None and state.iteration > told_at:
                told_at = state.iteration
                told = Progress(label, state.iteration, state.passes, state.gap, now - began)
                if self.callback(told):
                    return "callback"
            if interrupted():
                return "interrupted"
            if now >= deadline:
                return "time_limit"
            return "max_iter" if 0 < self.max_iter <= state.iteration else None

        return stop

    def _keep(
        self, fits: list[Fitted], tasks: range, which: np.ndarray, backend: InMemoryBackend,
        kernel: Kernel,
    ) -> None:  # fmt: skip
        """The attributes of a fitted estimator."""
        alpha = np.array([fitted.alpha for fitted in fits])
        self._alpha = alpha if self.warm_start else None
        self._kernel = kernel
        self.support_ = np.flatnonzero(alpha.any(axis=0))
        self.support_vectors_ = backend.gather(self.support_)
        signs = np.array([np.where(which[self.support_] == k, 1.0, -1.0) for k in tasks])
        margins = np.array([[fitted.margin] for fitted in fits])
        self.dual_coef_ = alpha[:, self.support_] * signs / margins
        self.n_iter_ = np.array([fitted.iterations for fitted in fits])
        self.gap_ = np.array([fitted.gap for fitted in fits])
        self.status_ = [fitted.status for fitted in fits]
        if unfinished := set(self.status_) - {"converged", "callback"}:
            warnings.warn(
                f"the fit ended before it converged ({', '.join(sorted(unfinished))}) at a gap of "
                f"{self.gap_.max():.1e}, where tol is {self.tol:g}",
                ConvergenceWarning,
                stacklevel=3,
            )
