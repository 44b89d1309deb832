"""Conversion of scikit-learn's arrays, dense or sparse, to the float32 rows of the kernels."""

from typing import Any

import numpy as np
import psutil
from scipy import sparse

from bigsvm.core.messages import SPARSE_ADVICE


def dense_rows(X: Any, start: int = 0) -> np.ndarray:
    """Convert to float32; a ValueError where rows do not fit into memory or into float32.

    Parameters
    ----------
    X : (n, d) array or sparse array
    start : int
        The index of the first row, for messages.

    Returns
    -------
    (n, d) float32 array
        In C order; X itself if possible.
    """
    if sparse.issparse(X):
        # Twice: the kernels have a copy in an order of their own.
        needed, free = 2 * 4 * X.shape[0] * X.shape[1], psutil.virtual_memory().available
        if needed > free:
            raise ValueError(
                f"X is sparse, and dense it would take {needed / 2**30:.1f} GiB where "
                f"{free / 2**30:.1f} are free; BigSVC computes on dense rows: {SPARSE_ADVICE}"
            )
    with np.errstate(over="ignore"):
        if sparse.issparse(X):
            X = X.astype(np.float32).toarray()  # in this order: dense in float64 takes twice that
        rows = np.ascontiguousarray(X, np.float32)
    if not np.isfinite(rows).all():
        row, column = np.argwhere(~np.isfinite(rows))[0]
        raise ValueError(
            f"X[{start + row}, {column}] is not finite, or too large for float32; scale the data"
        )
    return rows
