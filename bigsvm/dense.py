"""Rows of scikit-learn, dense or sparse, as the kernels take them."""

from typing import Any

import numpy as np
import psutil
from scipy import sparse


def dense_rows(X: Any) -> np.ndarray:
    """Rows as the kernels take them; an error where they do not fit, in memory or in float32."""
    if sparse.issparse(X):
        needed, there = 4 * X.shape[0] * X.shape[1], psutil.virtual_memory().available
        if needed > there:
            raise ValueError(
                f"X is sparse, and dense it would take {needed / 2**30:.1f} GiB where "
                f"{there / 2**30:.1f} are free; BigSVC computes on dense rows"
            )
        X = X.toarray()
    with np.errstate(over="ignore"):
        rows = np.ascontiguousarray(X, np.float32)
    if not np.isfinite(rows).all():
        row, column = np.argwhere(~np.isfinite(rows))[0]
        raise ValueError(f"X[{row}, {column}] is too large for float32; scale the data")
    return rows


def variance(X: Any) -> float:
    """Of all values together."""
    if sparse.issparse(X):
        return float(X.multiply(X).mean() - X.mean() ** 2)
    return float(X.var(dtype=np.float64))
