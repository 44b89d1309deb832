"""Some patterns of another backend, fetched from it whenever they are wanted."""

from collections.abc import Iterator

import numpy as np

from bigsvm import kernels
from bigsvm.backends import Backend
from bigsvm.backends.gathered import Gathered
from bigsvm.backends.sums import add_sums, as_columns
from bigsvm.files.sealed import InPieces
from bigsvm.kernels import Block, Kernel, block_of


class PartOfBackend:
    """Serves the rows and columns of a hot set too large to be held; see `Backend`.

    The same bits as from memory, each batch of columns at the price of fetching all its rows.
    """

    def __init__(self, backend: Backend, index: np.ndarray, kernel: Kernel) -> None:
        self.n, self.d = len(index), backend.d
        self.rows_at_once = backend.rows_at_once
        self.kernel_values = backend.kernel_values
        self._backend, self._index = backend, index
        self._kernel = kernel

    def gather(self, indices: np.ndarray) -> np.ndarray:
        """See `Backend`."""
        return self._backend.gather(self._index[indices])

    def columns(self, rows: np.ndarray, out: np.ndarray, slots: np.ndarray) -> None:
        """See `Backend`."""
        self.kernel_values.add_columns(rows, self.n)
        for block in self._blocks():
            kernels.columns(self._kernel, block, rows, out, slots)

    def matvec(self, rows: np.ndarray | InPieces, coef: np.ndarray) -> np.ndarray:
        """See `Backend`."""
        self.kernel_values.add_product(self._kernel, rows, coef, self.n)
        columns = as_columns(coef)
        sums = np.zeros((columns.shape[1], self.n))
        add_sums(self._kernel, self._blocks, rows, columns, sums)
        return sums if coef.ndim == 2 else sums[0]

    def _blocks(self) -> Iterator[Block]:
        start = 0
        for piece in Gathered(self._backend, self._index, self.rows_at_once):
            yield block_of(piece, start)
            start += len(piece)
