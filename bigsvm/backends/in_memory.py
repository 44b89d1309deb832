"""A few rows held in memory, served like a data set: the hot set of the block schedule."""

import numpy as np

from bigsvm import kernels
from bigsvm.backends.kernel_values import KernelValues
from bigsvm.backends.sums import add_sums, as_columns
from bigsvm.files.sealed import InPieces
from bigsvm.kernels import Kernel, block_of


class InMemoryBackend:
    """Serves rows (n, d) float32 from memory; see `Backend`.

    `kernel_values` is the counter of the training that it is a part of.
    """

    rows_at_once = 2**15

    def __init__(
        self, rows: np.ndarray, kernel: Kernel, kernel_values: KernelValues | None = None
    ) -> None:
        self.kernel_values = kernel_values or KernelValues()
        self.n, self.d = rows.shape
        self._rows = rows
        self._block = block_of(rows)
        self._kernel = kernel

    def gather(self, indices: np.ndarray) -> np.ndarray:
        """See `Backend`."""
        return self._rows[indices]

    def columns(self, rows: np.ndarray, out: np.ndarray, slots: np.ndarray) -> None:
        """See `Backend`."""
        self.kernel_values.add_columns(rows, self.n)
        kernels.columns(self._kernel, self._block, rows, out, slots)

    def matvec(self, rows: np.ndarray | InPieces, coef: np.ndarray) -> np.ndarray:
        """See `Backend`."""
        self.kernel_values.add_product(self._kernel, rows, coef, self.n)
        columns = as_columns(coef)
        sums = np.zeros((columns.shape[1], self.n))
        add_sums(self._kernel, lambda: [self._block], rows, columns, sums)
        return sums if coef.ndim == 2 else sums[0]
