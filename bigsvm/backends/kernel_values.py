"""How much of the kernel a training has computed."""

import numpy as np

from bigsvm.files.sealed import InPieces
from bigsvm.kernels import Kernel


class KernelValues:
    """Counts the kernel values that the backends of one training compute.

    The linear kernel forms its sums from one weight vector for each output, so there a product
    counts one value for each pattern and output, however many rows it is of.

    Attributes
    ----------
    total : int
        Those of earlier processes included, where a run was resumed.
    """

    def __init__(self) -> None:
        self.total = 0

    def add_columns(self, rows: np.ndarray, n: int) -> None:
        """Count the columns of `rows`, over n patterns."""
        self.total += len(rows) * n

    def add_product(
        self, kernel: Kernel, rows: np.ndarray | InPieces, coef: np.ndarray, n: int
    ) -> None:
        """Count a product of (q,) or (q, outputs) coefficients with `rows`, over n patterns."""
        outputs = 1 if coef.ndim == 1 else coef.shape[1]
        self.total += n * (outputs if kernel.name == "linear" else rows.shape[0])
