"""Rows of a data set that are never in memory all at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from bigsvm.backends import Backend
    from bigsvm.files.sealed import InPieces


class Gathered:
    """Some patterns of a backend, fetched in pieces of `step` rows.

    Parameters
    ----------
    backend : Backend
    index : (q,) int64
    step : int
    chunk_rows : int, optional
        Each piece goes on to the end of a chunk of so many rows, so that none is read twice;
        `index` is ascending then.
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


def with_coefficients(
    rows: np.ndarray | InPieces, coef: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pieces of the rows, each with the coefficients of its rows."""
    start = 0
    for piece in [rows] if isinstance(rows, np.ndarray) else rows:
        yield piece, coef[start : start + len(piece)]
        start += len(piece)
