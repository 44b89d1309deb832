"""Kernel products with rows that arrive in chunks; shared by all backends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from bigsvm.backends import Backend
from bigsvm.core.arrays import RowChunks
from bigsvm.kernels import Block, Kernel, add_to_weights, linear_products, products

Blocks = Callable[[], Iterable[Block]]


class GatheredRows:
    """Some patterns of a backend as `RowChunks`: gathered `step` rows at a time.

    Parameters
    ----------
    backend : Backend
    index : (q,) int64
    step : int
    chunk_rows : int, optional
        Extend each piece to the end of a stored chunk of this many rows, so that no chunk is read
        twice; requires an ascending `index`.
    """

    dtype = np.dtype(np.float32)

    def __init__(self, backend: Backend, index: np.ndarray, step: int, chunk_rows: int = 1) -> None:
        self._backend, self._index = backend, index
        self._step, self._chunk_rows = step, chunk_rows
        self.shape = (len(index), backend.d)

    def __iter__(self) -> Iterator[np.ndarray]:
        stop = 0
        while (start := stop) < len(self._index):
            stop = min(start + self._step, len(self._index))
            if self._chunk_rows > 1:
                end = (self._index[stop - 1] // self._chunk_rows + 1) * self._chunk_rows
                stop = int(np.searchsorted(self._index, end))
            yield self._backend.gather(self._index[start:stop])


def chunks_with_coef(
    rows: np.ndarray | RowChunks, coef: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield each chunk of rows with the coefficients of its rows."""
    start = 0
    for chunk in [rows] if isinstance(rows, np.ndarray) else rows:
        yield chunk, coef[start : start + len(chunk)]
        start += len(chunk)


def add_products(
    kernel: Kernel, blocks: Blocks, rows: np.ndarray | RowChunks, coef: np.ndarray, out: np.ndarray
) -> None:
    """Add the kernel products of the rows with coefficients (q, outputs) to `out` (outputs, n).

    Every chunk of rows takes one sweep over `blocks()`. The linear kernel needs only one sweep in
    all, because its rows are first summed into weight vectors.
    """
    if kernel.name == "linear":
        weights = linear_weights(rows, coef)
        for block in blocks():
            linear_products(block, weights, out)
        return
    for chunk, chunk_coef in chunks_with_coef(rows, coef):
        for block in blocks():
            products(kernel, block, chunk, chunk_coef, out)


def linear_weights(rows: np.ndarray | RowChunks, coef: np.ndarray) -> np.ndarray:
    """The weight vectors (outputs, d) of the linear kernel."""
    weights = np.zeros((coef.shape[1], rows.shape[1]))
    for chunk, chunk_coef in chunks_with_coef(rows, coef):
        add_to_weights(chunk, chunk_coef, weights)
    return weights


def as_2d(coef: np.ndarray) -> np.ndarray:
    """Coefficients (q,) as one column (q, 1); (q, outputs) unchanged."""
    return coef[:, None] if coef.ndim == 1 else coef
