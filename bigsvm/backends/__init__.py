"""Where the data lives: all that a solver ever asks of it."""

from typing import Protocol

import numpy as np

from bigsvm.backends.kernel_values import KernelValues
from bigsvm.files.sealed import InPieces


class Backend(Protocol):
    """Serves rows, kernel columns and kernel products; holds no state of the training.

    The values are the same bits whoever serves them, in however many pieces. Who wants many rows
    should `gather` no more than `rows_at_once`, or they exceed the memory meant for them. What
    `columns` and `matvec` compute is added to `kernel_values`, which the backends of one training
    share.
    """

    n: int
    d: int
    rows_at_once: int
    kernel_values: KernelValues

    def gather(self, indices: np.ndarray) -> np.ndarray:
        """The patterns `indices`, (q, d) float32, in the order asked."""

    def columns(self, rows: np.ndarray, out: np.ndarray, slots: np.ndarray) -> None:
        """Write the kernel column of row j, k(row j, pattern i) for all i, to ``out[slots[j]]``."""

    def matvec(self, rows: np.ndarray | InPieces, coef: np.ndarray) -> np.ndarray:
        """sum_j coef_j k(row j, pattern i) for all i, (n,) float64, without storing the columns.

        The sum is made in the order of the rows: in pieces they give the same bits as at once.

        For coefficients (q, sums) that many sums, (sums, n), of the same kernel values. Each is the
        same bits as it is alone, and a row with the coefficient 0 adds nothing to it.
        """
