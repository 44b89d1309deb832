"""Conversion of scikit-learn's arrays, dense or sparse, to the float32 rows of the kernels."""

from typing import Any

import numpy as np
import psutil
from scipy import sparse

from bigsvm.core.messages import SPARSE_ADVICE

_PIECE = 65_536  # values


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


class VarianceAccumulator:
    """The variance of all values, accumulated over batches of rows.

    The result does not depend on the batches, to the bit: each row is summed by itself, then the
    rows are added one by one.

    Parameters
    ----------
    weight : (n,) float64, optional
        The weight of each row.
    """

    def __init__(self, weight: np.ndarray | None = None) -> None:
        self._weight = weight
        self._seen = 0
        self._origin = 0.0
        self._count = self._sum = self._squares = 0.0  # of differences from the origin

    def add(self, rows: np.ndarray) -> None:
        """Add the next rows, (m, d) float32."""
        if self._seen == 0:
            self._origin = float(rows[0, 0])
        step = max(1, _PIECE // rows.shape[1])
        for start in range(0, len(rows), step):
            values = rows[start : start + step].astype(np.float64)
            values -= self._origin
            if self._weight is None:
                weight = np.ones(len(values))
            else:
                weight = self._weight[self._seen : self._seen + len(values)]
            self._seen += len(values)
            self._count = _add_in_order(self._count, weight * rows.shape[1])
            self._sum = _add_in_order(self._sum, weight * values.sum(axis=1))
            np.square(values, out=values)
            self._squares = _add_in_order(self._squares, weight * values.sum(axis=1))

    @property
    def variance(self) -> float:
        """The variance of the values so far."""
        mean = self._sum / self._count
        return max(0.0, self._squares / self._count - mean**2)


def _add_in_order(total: float, values: np.ndarray) -> float:
    """Add the values in order; np.sum adds pairwise, which depends on their number."""
    return float(np.cumsum(np.concatenate([[total], values]))[-1])
