"""`BigSVC`, the scikit-learn estimator."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from bigsvm.config import TOLERANCE
from bigsvm.estimator.fit import fit_classes, pauses
from bigsvm.estimator.folds import check_calibration, cross_validated_calibration
from bigsvm.estimator.iterates import (
    CallbackSupportMixin,
    EarlyStopping,
    Iterates,
    SklearnCallbacks,
    rows_to_hold_out,
    with_callbacks,
    without_rows,
)
from bigsvm.estimator.options import fit_options
from bigsvm.estimator.out_of_core import is_store
from bigsvm.estimator.results import as_model, set_results, warm_starts
from bigsvm.estimator.rows import labels_to_test, rows_to_fit, rows_to_predict
from bigsvm.estimator.stop_monitor import Progress, StopMonitor
from bigsvm.kernels import block_of, products
from bigsvm.models.model import Model
from bigsvm.terminal.signals import defer_interrupt


def _has_calibration(estimator: BigSVC) -> bool:
    if estimator.calibration is None:
        raise AttributeError(
            'predict_proba needs probabilities: set calibration="sigmoid" or "isotonic"'
        )
    return True


class BigSVC(ClassifierMixin, BaseEstimator, CallbackSupportMixin):
    """Sparse kernel SVM, trained by Frank-Wolfe methods.

    The L2-SVM (squared hinge loss), by default without an intercept; one-vs-rest for more than two
    classes.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the training errors: the larger, the fewer.
    kernel : {"rbf", "laplacian", "linear", "poly"}, default="rbf"
    sigma : float, optional
        The width of an rbf or laplacian kernel, instead of gamma: gamma = 1 / (2 sigma^2) for rbf
        and 1 / sigma for laplacian.
    gamma : {"scale", "auto"} or float, default="scale"
        As in SVC: "scale" is 1 / (n_features * X.var()), "auto" 1 / n_features.
    coef0, degree : float, int
        Parameters of the poly kernel, (gamma x.z + coef0)^degree.
    algorithm : {"auto", "mfw", "fw", "wsvm", "rwsvm"}, default="auto"
        "fw" trains the plain SVM. "mfw" trains on a working set that grows as needed, which gives
        fewer support vectors. "auto" is "fw" up to 1,000 rows and "mfw" beyond. "wsvm" and "rwsvm"
        are the weighted and the re-weighted SVM: see `margin_weight` of `fit`, and `rounds`.
    schedule : {"auto", "exact", "block"}, default="auto"
        "auto" is "exact" with `absolute_tol` up to 20,000 rows, and "block" otherwise.
    class_weight : dict or "balanced", optional
        Factors of C, as in SVC.
    intercept : float, default=0.0
        A constant added to the kernel, which gives the decision function an intercept; 0 for none.
    rounds : int, default=2
        For "rwsvm": the number of problems solved, each weighted by the coefficients of the last.
    reweight : dict, optional
        For "rwsvm": how weights follow from coefficients. The default is
        ``{"function": "sqrt", "floor": 0.1, "ceiling": 1.0}``; other functions are identity, log
        and tanh.
    calibration : {"sigmoid", "isotonic"}, optional
        Fit probabilities to the decision values of five cross-validated folds, for
        `predict_proba`: Platt's sigmoid, or isotonic regression, which needs a thousand rows or
        more. Requires five more fits, and rows in memory. None: no `predict_proba`.
    early_stopping : bool or {"auc", "accuracy", "balanced_accuracy", "f1"}, default=False
        Hold rows out of the training, score the model on them every 1,000 iterations (True: by
        "auc"), stop when the score has not improved `n_iter_no_change` times, and keep the model
        with the best score.
    validation_fraction : float, default=0.1
        With `early_stopping`: the share of the rows of each class that is held out, by
        `random_state`.
    n_iter_no_change : int, default=5
        With `early_stopping`.
    tol : float, default=0.01
        Stop when the pairwise gap is at most this fraction of the margin, as in SVC.
    absolute_tol : float, optional
        Instead of `tol`: stop when the gap itself is at most this, as in the paper. The margin
        shrinks with the number of rows and with C, so the same value means different things on
        different problems.
    max_iter : int, default=1_000_000
        Iterations for each class; -1 for no limit.
    time_limit : float or str, optional
        Seconds, or text such as "90s" or "2h30m", for the whole fit.
    memory_limit : int or str, default="2GiB"
        Bytes for kernel values, and for the rows of streamed data.
    random_state : int, RandomState or None, default=None
        Selects the row to start from; None is the first row.
    verbose : bool, default=False
        Print a line every second.
    warm_start : bool, default=False
        Start from the coefficients of the last fit if it had as many rows and the same classes.
    callback : callable, optional
        Called with a `Progress` after every step, or with "block" after every pass and every
        50 steps; the fit ends when it returns a true value.

    Attributes
    ----------
    classes_ : (n_classes,) array
    support_ : (n_support,) int64 array
        Indices of the rows that are support vectors of any class, ascending.
    support_vectors_ : (n_support, n_features) float32 array
    n_support_ : (n_classes,) int array
        The number of support vectors in each class.
    dual_coef_ : (1 or n_classes, n_support) float64 array
        In units of the margin: a decision value of 1 is on the margin.
    coef_ : (1 or n_classes, n_features) float64 array
        Weights of the features; only for the linear kernel.
    intercept_ : (1 or n_classes,) float64 array
        0 if `intercept` is 0.
    calibration_ : Calibration
        Only with `calibration`.
    validation_scores_ : list of dict
        Only with `early_stopping`: accuracy, balanced_accuracy, f1 and auc by iteration; the last
        are those at the end of the training.
    algorithm_ : str
        The algorithm used: what "auto" stood for.
    n_iter_ : (1 or n_classes,) int array
    gap_ : (1 or n_classes,) float array
        The final gap, under a gradient recomputed from the coefficients.
    relative_gap_ : (1 or n_classes,) float array
        The same as a fraction of the margin; at most `tol` if converged.
    passes_ : (1 or n_classes,) int array
        Passes over the rows to update the gradient, including those over a subsample.
    kernel_values_ : int
        The number of kernel values computed.
    status_ : list of str
        For each class: converged, max_iter, time_limit, callback, early_stopping or interrupted.
    n_features_in_, feature_names_in_
        As in all of scikit-learn; the names come from a data frame or a store.
    scaling_ : Scaling or None
        The scaling of the prepared store it was fitted on.

    Notes
    -----
    Up to 1,000 rows the problem is solved to rounding, by linear equations once the support vectors
    are known; with "auto" it is the plain SVM. The result then does not depend on the order of the
    rows, and a weight of 2 equals a repeated row, as scikit-learn's estimator checks require. With
    "mfw" the working set, and so the model, depends on the order of the rows.

    Ctrl-C ends the fit with the current, usable model and a warning; pressed twice, it raises
    KeyboardInterrupt as usual.

    The rows of a prepared store are scaled. Arrays passed to an estimator that was fitted on one
    must be scaled in the same way; `to_model()` returns a model that takes raw rows.

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
        calibration: Literal["sigmoid", "isotonic"] | None = None,
        early_stopping: bool | str = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        tol: float = TOLERANCE,
        absolute_tol: float | None = None,
        max_iter: int = 1_000_000,
        time_limit: float | str | None = None,
        memory_limit: int | str = "2GiB",
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
        self.calibration = calibration
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.absolute_tol = absolute_tol
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.memory_limit = memory_limit
        self.random_state = random_state
        self.verbose = verbose
        self.warm_start = warm_start
        self.callback = callback

    @with_callbacks
    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, margin_weight: Any = None
    ) -> BigSVC:
        """Train on rows and their labels.

        Parameters
        ----------
        X : (n, d) array, sparse array, data frame, path or dict
            In memory: anything that scikit-learn accepts. Streamed, never copied as a whole: a
            dask array, a Zarr array, an h5py dataset, a numpy memory map; a store by its path or
            address ("mine.zarr", "s3://bucket/mine.zarr"), or ``{"path": ..., "x": ..., "y": ...}``
            with the names of its arrays.
        y : (n,) array, optional
            The labels; by default those in the store, if X is one.
        sample_weight : (n,) array or float, optional
            Factors of C: a row of weight 2 counts twice, one of weight 0 is excluded.
        margin_weight : (n,) array or float, optional
            For wsvm and rwsvm: the margin required of each row, relative to the others.

        Returns
        -------
        BigSVC
            The fitted estimator.
        """
        began = time.monotonic()
        check_calibration(self, X)
        with rows_to_fit(self, X, y) as (rows, y):
            check_classification_targets(y)
            classes, codes = np.unique(y, return_inverse=True)
            if len(classes) < 2:
                raise ValueError(
                    f"y has one class only, {classes.tolist()[0]!r}; BigSVC needs two or more"
                )
            held_out = rows_to_hold_out(self, classes, codes)
            if held_out is not None:
                sample_weight = without_rows(sample_weight, held_out, len(codes))
            options = fit_options(self, rows, (classes, codes), sample_weight, margin_weight)
            n_outputs = 1 if len(classes) == 2 else len(classes)
            backend, memory = rows.backend(options, n_outputs)
            options = replace(options, memory=memory)
            starts = warm_starts(self, len(y), classes)
            iterates = Iterates(backend, codes, n_outputs, options)
            early = None
            if held_out is not None:
                early = EarlyStopping(self, iterates, held_out, codes[held_out])
            callbacks = SklearnCallbacks.of(self, iterates, {"X": X, "y": y})
            observers = [each for each in (early, callbacks) if each is not None]
            with defer_interrupt() as interrupted:
                every_step = self.callback is not None or callbacks is not None
                monitor = StopMonitor(
                    self, began, interrupted, pauses(options, every_step), observers
                )
                fits = fit_classes(backend, iterates.signs, options, monitor, starts)
            if early is not None:
                fits = early.best(fits)
                self.validation_scores_ = early.scores
            self.classes_ = classes
            set_results(self, fits, codes, backend, options)
            if callbacks is not None:
                callbacks.end()
            if self.calibration is not None:
                weights = sample_weight, margin_weight
                given = getattr(rows, "given", X)  # as validated; a memory map as it is
                self.calibration_ = cross_validated_calibration(self, given, codes, *weights)
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """The decision values of rows.

        Parameters
        ----------
        X : (n, d) array, sparse array, data frame, path or dict
            As for `fit`. For a store with the parts train and test it is test, unless X names
            "STORE/train".

        Returns
        -------
        (n,) or (n, n_classes) float64 array
            One value per row for two classes, at least 0 for the second class.
        """
        check_is_fitted(self)
        coef = np.ascontiguousarray(self.dual_coef_.T)
        with rows_to_predict(self, X) as rows:
            decision = np.repeat(self.intercept_[:, None], rows.shape[0], axis=1)
            for start, piece in rows.chunks():
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
            Values of `classes_`.
        """
        decision = self.decision_function(X)
        if decision.ndim == 1:
            return self.classes_[(decision >= 0).astype(int)]  # as in `Model`
        return self.classes_[decision.argmax(axis=1)]

    @available_if(_has_calibration)
    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class for each row; only with `calibration`.

        `predict` goes by the decision value, so its class need not be the most probable one.

        Parameters
        ----------
        X : (n, d) array, sparse array, data frame, path or dict
            As for `decision_function`.

        Returns
        -------
        (n, n_classes) array
            In the order of `classes_`.
        """
        check_is_fitted(self, "calibration_")
        return self.calibration_.probabilities(self.decision_function(X))

    @property
    def coef_(self) -> np.ndarray:
        """The weights of the features, for the linear kernel."""
        if self._kernel.name != "linear":
            raise AttributeError("coef_ is only available with the linear kernel")
        return self.dual_coef_ @ self.support_vectors_.astype(np.float64)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The accuracy on rows with known labels.

        Parameters
        ----------
        X : (n, d) array, sparse array, data frame, path or dict
            As for `decision_function`.
        y : (n,) array, optional
            The labels; by default those in the store, if X is one.
        sample_weight : (n,) array, optional
            Weights of the rows.

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
            Includes the scaling of the store it was trained on, and so takes raw rows.
        """
        check_is_fitted(self)
        return as_model(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
