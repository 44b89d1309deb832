"""The rows passed to `BigSVC`, in memory or out of core, behind one interface."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numba
import numpy as np
import psutil
from scipy import sparse
from sklearn.utils.validation import check_consistent_length, validate_data

from bigsvm.backends import Backend
from bigsvm.backends.in_memory import InMemoryBackend
from bigsvm.backends.local import LocalBackend
from bigsvm.backends.memory import plan_memory
from bigsvm.core.errors import UserError
from bigsvm.core.labels import classes_array, to_label
from bigsvm.core.messages import SPARSE_ADVICE
from bigsvm.core.scaling import effective_scaling
from bigsvm.core.variance import VarianceAccumulator
from bigsvm.estimator.fit import FitOptions
from bigsvm.estimator.out_of_core import (
    is_out_of_core,
    is_store,
    open_out_of_core,
    row_codes,
    validate_rows,
)
from bigsvm.solvers.block import largest_hot_set
from bigsvm.stores.rows import prefetch_map, rows_that_fit
from bigsvm.stores.store import Dataset

if TYPE_CHECKING:
    from bigsvm.estimator.classifier import BigSVC

ROWS_PER_CHUNK = 16_384
CHUNK_BYTES = 64 * 2**20  # at most, unless it is one row
_ACCEPTED = {"accept_sparse": "csr", "dtype": (np.float64, np.float32)}


class Rows(Protocol):
    """Rows to train on or to predict."""

    shape: tuple[int, int]

    def variance(self, weight: np.ndarray | None) -> float:
        """The variance of all values, rows weighted; the same bits wherever the rows are."""

    def backend(self, options: FitOptions, n_outputs: int) -> tuple[Backend, int]:
        """The backend that serves them to a solver, and the bytes of memory left for the solver.

        `n_outputs` is the number of outputs of a pass: 1, or the number of classes.
        """

    def chunks(self) -> Iterator[tuple[int, np.ndarray]]:
        """All rows in order, in chunks: the index of the first row, and the rows as float32."""


def dense_rows(X: Any, start: int = 0) -> np.ndarray:
    """Convert to float32; a ValueError where rows do not fit into memory or into float32.

    Parameters
    ----------
    X : (n, d) array or sparse array
    start : int
        The index of the first row, for messages.

    Returns
    -------
    (n, d) float32 array
        In C order; X itself if possible.
    """
    if sparse.issparse(X):
        # Twice, because the kernels keep a copy in their own memory layout.
        needed, free = 2 * 4 * X.shape[0] * X.shape[1], psutil.virtual_memory().available
        if needed > free:
            raise ValueError(
                f"X is sparse, and dense it would take {needed / 2**30:.1f} GiB where "
                f"{free / 2**30:.1f} are free; BigSVC computes on dense rows: {SPARSE_ADVICE}"
            )
    with np.errstate(over="ignore"):
        if sparse.issparse(X):
            X = X.astype(np.float32).toarray()  # in this order: dense in float64 takes twice that
        rows = np.ascontiguousarray(X, np.float32)
    if not np.isfinite(rows).all():
        row, column = np.argwhere(~np.isfinite(rows))[0]
        raise ValueError(
            f"X[{start + row}, {column}] is not finite, or too large for float32; scale the data"
        )
    return rows


class InMemoryRows:
    """Rows of an array, dense or sparse."""

    def __init__(self, X: Any) -> None:
        self.shape = X.shape
        self.given = X

    @cached_property
    def _dense(self) -> np.ndarray:
        return dense_rows(self.given)

    def variance(self, weight: np.ndarray | None) -> float:
        """See `Rows`."""
        spread = VarianceAccumulator(weight)
        spread.add(self._dense)
        return spread.variance

    def backend(self, options: FitOptions, n_outputs: int) -> tuple[Backend, int]:
        """See `Rows`."""
        return InMemoryBackend(self._dense, options.kernel), options.memory

    def chunks(self) -> Iterator[tuple[int, np.ndarray]]:
        """See `Rows`."""
        n, d = self.shape
        at_once = min(ROWS_PER_CHUNK, rows_that_fit(CHUNK_BYTES, d))
        for start in range(0, n, at_once):
            yield start, dense_rows(self.given[start : start + at_once], start)


class OutOfCoreRows:
    """Rows of a data set, whose chunks are read on demand and kept as far as memory allows."""

    def __init__(self, dataset: Dataset) -> None:
        self.shape = (dataset.n, dataset.d)
        self._dataset = dataset
        self._validated = False

    def variance(self, weight: np.ndarray | None) -> float:
        """See `Rows`; this first pass also validates the rows."""
        self._validated = True
        return validate_rows(self._dataset, weight)

    def backend(self, options: FitOptions, n_outputs: int) -> tuple[Backend, int]:
        """See `Rows`."""
        data = self._dataset
        if not self._validated:
            validate_rows(data)
        hot_rows = largest_hot_set(options.hot_set, data.d) if options.schedule == "block" else 0
        weights = 3 * 8 if options.weighted else 0  # bytes per row
        plan = plan_memory(
            options.memory,
            data,
            hot_rows,
            weights,
            n_outputs=n_outputs,
            held=0,
            name="memory_limit",
        )
        threads = numba.get_num_threads()
        backend = LocalBackend(data, options.kernel, plan.resident, threads, plan.rows_at_once)
        return backend, plan.solver

    def chunks(self) -> Iterator[tuple[int, np.ndarray]]:
        """See `Rows`."""
        data = self._dataset
        starts = range(0, data.n, data.chunk_rows)
        read = prefetch_map(lambda span: data.read(*span), data.spans(), data.n_readers)
        for start, rows in zip(starts, read, strict=True):
            yield start, dense_rows(rows, start)


@contextmanager
def rows_to_fit(estimator: BigSVC, X: Any, y: Any) -> Iterator[tuple[Rows, np.ndarray]]:
    """Validate the rows and labels passed to `BigSVC.fit` as scikit-learn does.

    Sets `n_features_in_`, `feature_names_in_` and `scaling_` of the estimator.
    """
    if not is_out_of_core(X):
        X, y = validate_data(estimator, X, y, ensure_min_samples=1, **_ACCEPTED)
        estimator.scaling_ = None
        with _user_error_as_value_error():
            yield InMemoryRows(X), y
        return
    from_store = y is None and is_store(X)
    with _user_error_as_value_error(), open_out_of_core(X, from_store) as dataset:
        rows = OutOfCoreRows(dataset)
        if from_store:
            y = classes_array(dataset.classes)[row_codes(dataset)]
        elif y is not None:
            y = np.asarray(y)  # the labels always fit into memory
        y = validate_data(estimator, y=y)
        check_consistent_length(rows, y)
        validate_data(estimator, rows, skip_check_array=True)
        if dataset.feature_names:
            estimator.feature_names_in_ = np.array(dataset.feature_names, object)
        estimator.scaling_ = dataset.scaling
        yield rows, y


@contextmanager
def rows_to_predict(estimator: BigSVC, X: Any) -> Iterator[Rows]:
    """Validate the rows passed to `BigSVC.decision_function` against those of the training."""
    if not is_out_of_core(X):
        yield InMemoryRows(validate_data(estimator, X, reset=False, **_ACCEPTED))
        return
    with _user_error_as_value_error(), open_out_of_core(X, testing=True) as dataset:
        rows, path = OutOfCoreRows(dataset), dataset.path
        if dataset.d != estimator.n_features_in_:
            raise ValueError(
                f"{path} has {dataset.d} features, but BigSVC is expecting "
                f"{estimator.n_features_in_} features as input"
            )
        names = getattr(estimator, "feature_names_in_", None)
        if names is not None and dataset.feature_names and dataset.feature_names != [*names]:
            raise ValueError(f"{path}: its feature names differ from those of the training data")
        prepared = dataset.recorded_fingerprint is not None
        if prepared and effective_scaling(dataset.scaling) != effective_scaling(estimator.scaling_):
            raise ValueError(
                f"{path}: was not scaled like the training rows; use data prepared together with "
                "them"
            )
        yield rows


def labels_to_test(estimator: BigSVC, X: Any) -> np.ndarray:
    """The labels in the store X, which must be among the classes of the training."""
    classes = tuple(to_label(label) for label in estimator.classes_)
    with (
        _user_error_as_value_error(),
        open_out_of_core(X, True, testing=True, classes=classes) as dataset,
    ):
        return estimator.classes_[row_codes(dataset)]


@contextmanager
def _user_error_as_value_error() -> Iterator[None]:
    """Raise ValueError, as scikit-learn does, instead of UserError."""
    try:
        yield
    except UserError as mistake:
        raise ValueError(str(mistake)) from mistake
