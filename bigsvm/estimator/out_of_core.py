"""Data that `BigSVC` streams instead of copying: stores, Zarr, HDF5, dask arrays, memory maps."""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np

from bigsvm.core.errors import UserError
from bigsvm.core.labels import Classes, class_codes
from bigsvm.core.messages import one_line
from bigsvm.core.urls import path_or_url
from bigsvm.core.variance import VarianceAccumulator
from bigsvm.stores.fingerprint import finite_chunks, new_fingerprint, verify_recorded
from bigsvm.stores.group import StoreGroup
from bigsvm.stores.rows import CHUNK_BYTES, rows_that_fit
from bigsvm.stores.store import Dataset, open_dataset, part_to_predict

_LIBRARIES = ("dask", "h5py", "zarr")
_ARRAYS = {"Array", "Dataset", "memmap"}  # the class names of these libraries


def is_store(X: Any) -> bool:
    """Whether X names a store: a path, an address, or a mapping with a `path`."""
    # Not isinstance: some sparse matrices are subclasses of dict.
    return isinstance(X, str | os.PathLike) or type(X) is dict


def is_out_of_core(X: Any) -> bool:
    """Whether X is to be streamed rather than held in memory."""
    if is_store(X):
        return True
    return isinstance(X, np.memmap) or type(X).__module__.partition(".")[0] in _LIBRARIES


def open_out_of_core(
    X: Any,
    with_labels: bool = False,
    *,
    testing: bool = False,
    classes: Classes | None = None,
) -> Dataset:
    """Open data for which `is_out_of_core` holds; the caller closes it.

    Parameters
    ----------
    X : path, mapping or array
        As for `open_dataset`, or a two-dimensional array that reads rows when it is sliced.
    with_labels : bool
        Also read the labels of a store.
    testing : bool
        Open the part test of a store that has the parts train and test.
    classes : tuple of labels, optional
        The classes that its labels must be among.

    Returns
    -------
    Dataset
        An array passed as X is neither opened nor closed, and has no labels.
    """
    if is_store(X):
        spec = X if type(X) is dict else {"path": path_or_url(os.fspath(X))}
        part = part_to_predict(spec) if testing and spec.get("path") else "train"
        dataset = open_dataset(spec, part, classes=classes, with_labels=with_labels)
        for line in dataset.missing_chunk_warnings():
            warnings.warn(line, stacklevel=3)
        return dataset
    library = type(X).__module__.partition(".")[0]
    _check(X, library)
    remote = library == "zarr" and type(X.store).__name__ not in ("LocalStore", "MemoryStore")
    if library == "dask":
        X = _DaskRows(X)
    elif isinstance(X, np.memmap):
        X = _MappedRows(X)
    dataset = Dataset(StoreGroup(None, "X", lambda: None, remote), X, None, {}, "X")
    if library == "dask":
        dataset.n_readers = 1  # dask has threads of its own
    return dataset


def row_codes(dataset: Dataset) -> np.ndarray:
    """For each row the position of its class among those of the data set."""
    return np.searchsorted(class_codes(dataset.classes), dataset.labels())


def validate_rows(dataset: Dataset, weight: np.ndarray | None = None) -> float:
    """Read all rows once, check that they are finite and unchanged, and return their variance.

    From then on, chunks that change raise an error.
    """
    spread = VarianceAccumulator(weight)
    prepared = dataset.recorded_fingerprint is not None
    digest = new_fingerprint(dataset.n, dataset.d)
    for rows in finite_chunks(dataset):
        spread.add(rows)
        if prepared:
            digest.update(rows)
    if prepared and dataset.has_labels:  # they are part of the fingerprint
        verify_recorded(dataset, digest)
    return spread.variance


def _check(X: Any, library: str) -> None:
    what = f"X is a {library} {type(X).__name__}"
    if _ARRAYS.isdisjoint(kind.__name__ for kind in type(X).__mro__):
        advice = "; its to_dask_array(lengths=True) will do" if hasattr(X, "columns") else ""
        raise UserError(f"{what}, not an array{advice}")
    if len(X.shape) != 2:
        raise UserError(f"{what} of shape {X.shape}; Expected 2D array (rows, features)")
    if any(size != size for size in X.shape):
        raise UserError(f"{what} of unknown size; call its compute_chunk_sizes() first")
    if 0 in X.shape:
        raise UserError(f"{what} of shape {X.shape}, which is empty")
    if X.dtype.kind not in "fiub":
        raise UserError(f"{what} of {X.dtype}, not of real numbers")


class _MappedRows:
    """Rows of a memory-mapped file."""

    def __init__(self, rows: np.memmap) -> None:
        self._rows, self.shape, self.dtype = rows, rows.shape, rows.dtype
        # The system pages in what is read; but rows of other types are copied to float32.
        n, d = rows.shape
        self.chunks = (min(n, rows_that_fit(CHUNK_BYTES, d, max(4, rows.itemsize))), d)

    def __getitem__(self, span: slice) -> np.ndarray:
        return np.asarray(self._rows[span])


class _DaskRows:
    """Rows that dask computes every time they are read."""

    def __init__(self, array: Any) -> None:
        self._array, self.shape, self.dtype = array, array.shape, array.dtype
        self.chunks = (max(array.chunks[0]), array.shape[1])

    def __getitem__(self, span: slice) -> np.ndarray:
        try:
            return np.asarray(self._array[span])
        except Exception as problem:
            raise UserError(
                f"X: dask could not compute rows {span.start} to {span.stop} ({one_line(problem)})"
            ) from problem
