"""`BigSVC`, the solver as a scikit-learn classifier."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from bigsvm.backends import Backend
from bigsvm.config import TOLERANCE
from bigsvm.estimator.fit import FitOptions, Fitted, fit_binary
from bigsvm.estimator.fit_classes import fit_classes
from bigsvm.estimator.options import fit_options
from bigsvm.estimator.out_of_core import is_store
from bigsvm.estimator.rows import labels_to_test, rows_to_fit, rows_to_predict
from bigsvm.estimator.stop_monitor import Progress, StopMonitor
from bigsvm.kernels import block_of, products
from bigsvm.terminal.signals import defer_interrupt

if TYPE_CHECKING:
    from bigsvm.models.model import Model


class BigSVC(ClassifierMixin, BaseEstimator):
    """Sparse kernel SVM, trained by Frank-Wolfe methods.

    The L2-SVM, without an intercept unless asked for. More than two classes are trained one
    against the rest.

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
    algorithm : {"auto", "mfw", "fw", "wsvm", "rwsvm"}, default="auto"
        "fw" trains the plain SVM. "mfw" keeps a working set that only grows, and needs fewer
        support vectors. "auto" is "fw" up to 1,000 rows, and "mfw" beyond. "wsvm" and "rwsvm" are
        the weighted and the re-weighted SVM: see `margin_weight` of `fit`, and `rounds`.
    schedule : {"auto", "exact", "block"}, default="auto"
        "exact" up to 20,000 rows, "block" beyond.
    class_weight : dict or "balanced", optional
        Factors of C, as in SVC.
    intercept : float, default=0.0
        Added to the kernel, which gives the decision an intercept; 0 for none.
    rounds : int, default=2
        Of "rwsvm": problems solved, each weighted by the coefficients of the one before.
    reweight : dict, optional
        Of "rwsvm": the way from coefficients to weights. The default is
        ``{"function": "sqrt", "floor": 0.1, "ceiling": 1.0}``; other functions are identity, log
        and tanh.
    tol : float, default=0.01
        Stop when the pairwise gap is no larger than this share of the margin, as in SVC.
    absolute_tol : float, optional
        Instead of `tol`: stop when the gap itself is no larger, as in the paper. The margin
        shrinks as rows are added and as C grows, so that it means something else on every problem.
    max_iter : int, default=1_000_000
        For each class; -1 for no limit.
    time_limit : float or str, optional
        Seconds, or like "90s", "2h30m"; for the whole fit.
    memory_limit : int or str, default="1GiB"
        Bytes for kernel values, and for rows of data that is streamed.
    random_state : int, RandomState or None, default=None
        Chooses the row to start from; None takes the first.
    verbose : bool, default=False
        Print a line a second.
    warm_start : bool, default=False
        Go on from the coefficients of the last fit, if that had as many rows and the same classes.
    callback : callable, optional
        Called with a `Progress` after every step, or with "block" after every pass and every
        1,000 steps; a true answer ends the fit.

    Attributes
    ----------
    classes_ : (n_classes,) array
    support_ : (n_support,) int64 array
        Rows that are a support vector of some class, ascending.
    support_vectors_ : (n_support, n_features) float32 array
    n_support_ : (n_classes,) int array
        How many of them each class has.
    dual_coef_ : (1 or n_classes, n_support) float64 array
        In units of the margin: a decision value of 1 is at the margin of its class.
    coef_ : (1 or n_classes, n_features) float64 array
        What each feature counts; of the linear kernel only.
    intercept_ : (1 or n_classes,) float64 array
        0 where `intercept` is.
    algorithm_ : str
        That was taken for "auto".
    n_iter_ : (1 or n_classes,) int array
    gap_ : (1 or n_classes,) float array
        At the end, under a gradient computed from the coefficients alone.
    relative_gap_ : (1 or n_classes,) float array
        The same as a share of the margin; at most `tol` where converged.
    passes_ : (1 or n_classes,) int array
        Passes over the rows that kept the gradient up to date; one over a sample counts too.
    kernel_values_ : int
        How many were computed in the fit.
    status_ : list of str
        Of each class: converged, max_iter, time_limit, callback or interrupted.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn; the names are those of a data frame or of a store.
    scaling_ : Scaling or None
        Of the prepared store that it was fitted on.

    Notes
    -----
    Up to 1,000 rows the problem is solved to rounding, by linear equations once its support
    vectors are known; with "auto", that problem is the plain SVM. So the order of the rows does not
    matter there, and a weight of 2 is the same as the row twice, as scikit-learn's checks ask. The
    working set of "mfw", and so its model, depends on the order; `tol` is then what is left open.

    Ctrl-C ends the fit with the model so far, which is usable, and a warning; twice, it raises
    KeyboardInterrupt as usual.

    The rows of a prepared store are scaled already. So the arrays that a classifier fitted on one
    is given must be scaled in the same way; `to_model()` gives a model that takes raw rows.

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
        algorithm: str = "auto",
        schedule: str = "auto",
        class_weight: Any = None,
        intercept: float = 0.0,
        rounds: int = 2,
        reweight: dict[str, Any] | None = None,
        tol: float = TOLERANCE,
        absolute_tol: float | None = None,
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
        self.class_weight = class_weight
        self.intercept = intercept
        self.rounds = rounds
        self.reweight = reweight
        self.tol = tol
        self.absolute_tol = absolute_tol
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.memory_limit = memory_limit
        self.random_state = random_state
        self.verbose = verbose
        self.warm_start = warm_start
        self.callback = callback

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, margin_weight: Any = None
    ) -> BigSVC:
        """Train on rows and their labels.

        Parameters
        ----------
        X : (n, d) array, sparse array, data frame, path or dict
            In memory: anything that scikit-learn takes. Streamed, and never copied as a whole: a
            dask array, a Zarr array, an h5py dataset, a numpy memory map; a store by its path or
            address ("mine.zarr", "s3://bucket/mine.zarr"), or ``{"path": ..., "x": ..., "y": ...}``
            with the names of arrays in it.
        y : (n,) array, optional
            The labels; of a store, those in it where y is not given.
        sample_weight : (n,) array or float, optional
            Factors of C: a row of weight 2 counts as two, one of weight 0 takes no part.
        margin_weight : (n,) array or float, optional
            Of the algorithms wsvm and rwsvm: the margin asked of each row, 1 being the common one.

        Returns
        -------
        BigSVC
            Itself.
        """
        began = time.monotonic()
        with rows_to_fit(self, X, y) as (rows, y):
            check_classification_targets(y)
            classes, which = np.unique(y, return_inverse=True)
            if len(classes) < 2:
                raise ValueError(
                    f"y holds one class only, {classes.tolist()[0]!r}; BigSVC needs two or more"
                )
            options = fit_options(self, rows, (classes, which), sample_weight, margin_weight)
            n_outputs = 1 if len(classes) == 2 else len(classes)
            backend, memory = rows.backend(options, n_outputs)
            options = replace(options, memory=memory)
            starts = self._starts(len(y), classes)
            with defer_interrupt() as interrupted:
                monitor = StopMonitor(self, began, interrupted)
                told = self.callback is not None
                if n_outputs == 1:
                    signs = np.where(which == 1, 1, -1).astype(np.int8)
                    start = starts[0] if starts is not None else None
                    fits = [fit_binary(backend, signs, options, monitor, start, told)]
                else:
                    fits = fit_classes(backend, which, n_outputs, options, monitor, starts, told)
            self.classes_ = classes
            self._keep(fits, which, backend, options)
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """The decision values of rows.

        Parameters
        ----------
        X : (n, d) array, sparse array, data frame, path or dict
            As for `fit`. Of a store with the parts train and test, test is taken unless
            "STORE/train" is named.

        Returns
        -------
        (n,) or (n, n_classes) float64 array
            For two classes one value, 0 or above for the second.
        """
        check_is_fitted(self)
        coef = np.ascontiguousarray(self.dual_coef_.T)
        with rows_to_predict(self, X) as rows:
            decision = np.repeat(self.intercept_[:, None], rows.shape[0], axis=1)
            for start, piece in rows.pieces():
                block = block_of(piece, start)
                products(self._kernel, block, self.support_vectors_, coef, decision)
        return decision[0] if len(self.classes_) == 2 else decision.T

    def predict(self, X: Any) -> np.ndarray:
        """The class of each row.

        Parameters
        ----------
        X : (n, d) array, sparse array, data frame, path or dict
            As for `decision_function`.

        Returns
        -------
        (n,) array
            Of the values in `classes_`.
        """
        decision = self.decision_function(X)
        if decision.ndim == 1:
            return self.classes_[(decision >= 0).astype(int)]  # as in `Model`
        return self.classes_[decision.argmax(axis=1)]

    @property
    def coef_(self) -> np.ndarray:
        """What each feature counts, where the kernel is linear."""
        if self._kernel.name != "linear":
            raise AttributeError("coef_ is there with the linear kernel only")
        return self.dual_coef_ @ self.support_vectors_.astype(np.float64)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The share of rows that are predicted right.

        Parameters
        ----------
        X : (n, d) array, sparse array, data frame, path or dict
            As for `decision_function`.
        y : (n,) array, optional
            The labels; of a store, those in it where y is not given.
        sample_weight : (n,) array, optional
            What each row counts.

        Returns
        -------
        float
        """
        if y is None and is_store(X):
            check_is_fitted(self)
            y = labels_to_test(self, X)
        return float(super().score(X, y, sample_weight))

    def to_model(self) -> Model:
        """The model for `save`, `bigsvm.export` and `bigsvm.predict`.

        Returns
        -------
        Model
            With the scaling of the store that it was trained on, so that it takes raw rows.
        """
        from bigsvm.core.labels import to_label
        from bigsvm.models.model import Model

        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        about = {
            "algorithm": self.algorithm_,
            "C": float(self.C),
            "iteration": int(self.n_iter_.sum()),
            "relative_gap": float(self.relative_gap_.max()),
            "feature_names": None if names is None else [str(name) for name in names],
        }
        two = len(self.classes_) == 2
        return Model(
            self.support_vectors_,
            self.dual_coef_[0] if two else self.dual_coef_,
            self.support_,
            asdict(self._kernel),
            tuple(to_label(label) for label in self.classes_),
            self.scaling_,
            about,
            float(self.intercept_[0]) if two else tuple(self.intercept_.tolist()),
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _starts(self, n: int, classes: np.ndarray) -> np.ndarray | None:
        """The coefficients of the last fit, if that is to be gone on from."""
        last: Any = getattr(self, "_alpha", None)
        if not self.warm_start or last is None or last.shape[1] != n:
            return None
        return last if np.array_equal(self.classes_, classes) else None

    def _keep(
        self, fits: list[Fitted], which: np.ndarray, backend: Backend, options: FitOptions
    ) -> None:
        """The attributes of a fitted estimator."""
        self._alpha = np.array([fitted.alpha for fitted in fits]) if self.warm_start else None
        self._kernel = options.kernel
        self.algorithm_ = options.algorithm if self.algorithm == "auto" else self.algorithm
        coef = np.array([fitted.coef for fitted in fits])
        self.support_ = np.flatnonzero(coef.any(axis=0))
        self.support_vectors_ = backend.gather(self.support_)
        self.n_support_ = np.bincount(which[self.support_], minlength=len(self.classes_))
        self.dual_coef_ = coef[:, self.support_]
        self.intercept_ = options.intercept * self.dual_coef_.sum(axis=1)
        self.n_iter_ = np.array([fitted.iterations for fitted in fits])
        self.gap_ = np.array([fitted.gap for fitted in fits])
        self.relative_gap_ = np.array([fitted.relative_gap for fitted in fits])
        self.passes_ = np.array([fitted.passes for fitted in fits])
        self.kernel_values_ = backend.kernel_values.total
        self.status_ = [fitted.status for fitted in fits]
        if unfinished := set(self.status_) - {"converged", "callback"}:
            warnings.warn(
                f"the fit ended before it converged ({', '.join(sorted(unfinished))}) at a gap of "
                f"{self.gap_.max():.1e}, {self.relative_gap_.max():.1e} of the margin, where "
                f"{options.stop_rule} was asked for"
                + ("; are the features scaled?" if "max_iter" in unfinished else ""),
                ConvergenceWarning,
                stacklevel=3,
            )
        if fits[0].useless is not None:
            warnings.warn(fits[0].useless, ConvergenceWarning, stacklevel=3)
