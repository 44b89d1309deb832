"""Some patterns of another backend, fetched from it whenever they are wanted."""

import numpy as np

from bigsvm import kernels
from bigsvm.backends import Backend
from bigsvm.gathered import Gathered
from bigsvm.kernels import Kernel, block_of


class PartOfBackend:
    """Serves the rows and columns of a hot set too large to be held; see `Backend`.

    The same bits as from memory, each batch of columns at the price of fetching all its rows.
    """

    def __init__(self, backend: Backend, index: np.ndarray, kernel: Kernel) -> None:
        self.n, self.d = len(index), backend.d
        self.rows_at_once = backend.rows_at_once
        self._backend, self._index = backend, index
        self._kernel = kernel

    def gather(self, indices: np.ndarray) -> np.ndarray:
        """See `Backend`."""
        return self._backend.gather(self._index[indices])

    def columns(self, rows: np.ndarray, out: np.ndarray, slots: np.ndarray) -> None:
        """See `Backend`."""
        start = 0
        for piece in Gathered(self._backend, self._index, self.rows_at_once):
            kernels.columns(self._kernel, block_of(piece, start), rows, out, slots)
            start += len(piece)

    def matvec(self, rows: object, coef: np.ndarray) -> np.ndarray:
        """Nobody asks for the products of a hot set alone."""
        raise NotImplementedError
