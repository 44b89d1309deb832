"""Backends: where the data lives, behind the three operations that solvers need."""

from typing import Protocol

import numpy as np

from bigsvm.core.arrays import RowChunks
from bigsvm.kernels import Kernel

# Rows of a product that are summed before the next ones are added. Independent of the memory limit,
# because the order of summation determines the bits; the number gathered at once does not.
PRODUCT_ROWS = 2**15
# Columns fetched together: a multiple of the kernels' packs, but few, so that most are used.
COLUMN_BATCH = 24


class KernelCounter:
    """Counts the kernel values that the backends of one training compute.

    The linear kernel forms its products from one weight vector for each output, so a product counts
    one value for each pattern and output, however many rows it involves.

    Attributes
    ----------
    total : int
        Includes the values computed by earlier processes of a resumed run.
    """

    def __init__(self) -> None:
        self.total = 0

    def add_columns(self, rows: np.ndarray, n: int) -> None:
        """Count the columns of `rows` over n patterns."""
        self.total += len(rows) * n

    def add_product(
        self, kernel: Kernel, rows: np.ndarray | RowChunks, coef: np.ndarray, n: int
    ) -> None:
        """Count a product of (q,) or (q, outputs) coefficients with `rows` over n patterns."""
        outputs = 1 if coef.ndim == 1 else coef.shape[1]
        self.total += n * (outputs if kernel.name == "linear" else rows.shape[0])


class Backend(Protocol):
    """Serves rows, kernel columns and kernel products; holds no state of the training.

    Every backend returns the same bits, however the rows are divided into chunks or shards.

    Memory contract: callers gather at most `rows_at_once` rows in one call; more would exceed the
    memory set aside for them. `columns` and `matvec` add the kernel values they compute to
    `kernel_values`, which the backends of one training share.
    """

    n: int
    d: int
    rows_at_once: int
    kernel_values: KernelCounter

    def gather(self, indices: np.ndarray) -> np.ndarray:
        """Return the patterns `indices` in the order given, (q, d) float32."""

    def columns(self, rows: np.ndarray, out: np.ndarray, slots: np.ndarray) -> None:
        """Write the kernel column of row j, k(row j, pattern i) for all i, to ``out[slots[j]]``."""

    def matvec(self, rows: np.ndarray | RowChunks, coef: np.ndarray) -> np.ndarray:
        """Return sum_j coef_j k(row j, pattern i) for all i, (n,) float64, without storing columns.

        Terms are added in the order of the rows, so rows in chunks give the same bits as rows in
        one array.

        Coefficients of shape (q, outputs) give (outputs, n), computed from the same kernel values.
        Each output has the same bits as when it is computed alone, and a row whose coefficient is 0
        adds nothing to it.
        """
