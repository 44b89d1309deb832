"""The rows that `BigSVC` is given, in memory or outside, by one interface."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import numba
import numpy as np
from sklearn.utils.validation import check_consistent_length, validate_data

from bigsvm.backends import Backend
from bigsvm.backends.in_memory import InMemoryBackend
from bigsvm.backends.local import LocalBackend
from bigsvm.backends.memory import plan_memory
from bigsvm.core.errors import UserError
from bigsvm.core.labels import classes_array, to_label
from bigsvm.estimator.dense import Spread, dense_rows
from bigsvm.estimator.fit import FitOptions
from bigsvm.estimator.out_of_core import (
    is_out_of_core,
    is_store,
    look_through,
    open_out_of_core,
    places_of,
)
from bigsvm.models.scoring import effective
from bigsvm.stores.rows import prefetch_map
from bigsvm.stores.store import Dataset

if TYPE_CHECKING:
    from bigsvm.estimator.classifier import BigSVC

ROWS_AT_A_TIME = 16_384
_ACCEPTED = {"accept_sparse": "csr", "dtype": (np.float64, np.float32)}


class Rows(Protocol):
    """Rows to train on or to predict."""

    shape: tuple[int, int]

    def variance(self, weight: np.ndarray | None) -> float:
        """Of all values together, a row as often as its weight; the same bits wherever they are."""

    def backend(self, options: FitOptions, n_outputs: int) -> tuple[Backend, int]:
        """Who serves them to a solver, and how many bytes of memory are left for that one.

        `n_outputs` is the number of decision values of a pattern.
        """

    def pieces(self) -> Iterator[tuple[int, np.ndarray]]:
        """All rows in order, some at a time: the number of the first, and they as float32."""


class InMemoryRows:
    """Rows of an array, dense or sparse."""

    def __init__(self, X: Any) -> None:
        self.shape = X.shape
        self._given = X
        self._rows: np.ndarray | None = None

    @property
    def _dense(self) -> np.ndarray:
        if self._rows is None:
            self._rows = dense_rows(self._given)
        return self._rows

    def variance(self, weight: np.ndarray | None) -> float:
        """See `Rows`."""
        spread = Spread(weight)
        spread.add(self._dense)
        return spread.variance

    def backend(self, options: FitOptions, n_outputs: int) -> tuple[Backend, int]:
        """See `Rows`."""
        return InMemoryBackend(self._dense, options.kernel), options.memory

    def pieces(self) -> Iterator[tuple[int, np.ndarray]]:
        """See `Rows`."""
        for start in range(0, self.shape[0], ROWS_AT_A_TIME):
            yield start, dense_rows(self._given[start : start + ROWS_AT_A_TIME], start)


class OutOfCoreRows:
    """Rows of a data set: chunks are read when they are wanted, and kept while memory allows."""

    def __init__(self, dataset: Dataset) -> None:
        self.shape = (dataset.n, dataset.d)
        self._dataset = dataset
        self._seen = False

    def variance(self, weight: np.ndarray | None) -> float:
        """See `Rows`; the first pass, which also looks whether they can be trained on."""
        self._seen = True
        return look_through(self._dataset, weight)

    def backend(self, options: FitOptions, n_outputs: int) -> tuple[Backend, int]:
        """See `Rows`."""
        data = self._dataset
        if not self._seen:
            look_through(data)
        hot_rows = options.hot_set if options.schedule == "block" else 0
        weights = 3 * 8 if options.weighted else 0  # bytes a row
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

    def pieces(self) -> Iterator[tuple[int, np.ndarray]]:
        """See `Rows`."""
        data = self._dataset
        starts = range(0, data.n, data.chunk_rows)
        read = prefetch_map(lambda span: data.read(*span), data.spans(), data.n_readers)
        for start, rows in zip(starts, read, strict=True):
            yield start, dense_rows(rows, start)


@contextmanager
def rows_to_fit(given: BigSVC, X: Any, y: Any) -> Iterator[tuple[Rows, np.ndarray]]:
    """Rows and labels as `BigSVC.fit` takes them, checked in the way of scikit-learn.

    Sets what an estimator knows of its rows: `n_features_in_`, `feature_names_in_`, `scaling_`.
    """
    if not is_out_of_core(X):
        X, y = validate_data(given, X, y, ensure_min_samples=1, **_ACCEPTED)
        given.scaling_ = None
        with _mistakes_as_value_errors():
            yield InMemoryRows(X), y
        return
    from_store = y is None and is_store(X)
    with _mistakes_as_value_errors(), open_out_of_core(X, from_store) as dataset:
        rows = OutOfCoreRows(dataset)
        if from_store:
            y = classes_array(dataset.classes)[places_of(dataset)]
        elif y is not None:
            y = np.asarray(y)  # a label a row can be held, whoever has them
        y = validate_data(given, y=y)
        check_consistent_length(rows, y)
        validate_data(given, rows, skip_check_array=True)
        if dataset.feature_names:
            given.feature_names_in_ = np.array(dataset.feature_names, object)
        given.scaling_ = dataset.scaling
        yield rows, y


@contextmanager
def rows_to_predict(given: BigSVC, X: Any) -> Iterator[Rows]:
    """Rows as `BigSVC.decision_function` takes them, if they are like those of the training."""
    if not is_out_of_core(X):
        yield InMemoryRows(validate_data(given, X, reset=False, **_ACCEPTED))
        return
    with _mistakes_as_value_errors(), open_out_of_core(X, testing=True) as dataset:
        rows, path = OutOfCoreRows(dataset), dataset.path
        if dataset.d != given.n_features_in_:
            raise ValueError(
                f"{path} has {dataset.d} features, but BigSVC is expecting "
                f"{given.n_features_in_} features as input"
            )
        names = getattr(given, "feature_names_in_", None)
        if names is not None and dataset.feature_names and dataset.feature_names != [*names]:
            raise ValueError(f"{path}: its feature names are not those of the training")
        prepared = dataset.recorded_fingerprint is not None
        if prepared and effective(dataset.scaling) != effective(given.scaling_):
            raise ValueError(
                f"{path}: was not scaled like the training rows; take data prepared together with "
                "them"
            )
        yield rows


def labels_to_test(given: BigSVC, X: Any) -> np.ndarray:
    """The labels in the store that X names, which must be among the classes of the training."""
    classes = tuple(to_label(label) for label in given.classes_)
    with (
        _mistakes_as_value_errors(),
        open_out_of_core(X, True, testing=True, classes=classes) as dataset,
    ):
        return given.classes_[places_of(dataset)]


@contextmanager
def _mistakes_as_value_errors() -> Iterator[None]:
    """As scikit-learn has them."""
    try:
        yield
    except UserError as mistake:
        raise ValueError(str(mistake)) from mistake
