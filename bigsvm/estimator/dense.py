"""Rows of scikit-learn, dense or sparse, as the kernels take them."""

from typing import Any

import numpy as np
import psutil
from scipy import sparse

_PIECE = 65_536  # values


def dense_rows(X: Any, start: int = 0) -> np.ndarray:
    """Rows as the kernels take them; an error where they do not fit, in memory or in float32.

    Parameters
    ----------
    X : (n, d) array or sparse array
    start : int
        The number of the first row, for messages.

    Returns
    -------
    (n, d) float32 array
        In C order; X itself, if it is that already.
    """
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
        raise ValueError(
            f"X[{start + row}, {column}] is not finite, or too large for float32; scale the data"
        )
    return rows


class Spread:
    """The variance of all values together, collected from batches of rows.

    The same values give the same bits in whatever batches they come: every row is summed by
    itself, then the rows one after the other.

    Parameters
    ----------
    weight : (n,) float64, optional
        How often each row counts.
    """

    def __init__(self, weight: np.ndarray | None = None) -> None:
        self._weight = weight
        self._seen = 0
        self._origin = 0.0
        self._count = self._sum = self._squares = 0.0  # of distances from the origin

    def add(self, rows: np.ndarray) -> None:
        """Take in the next rows (m, d) float32."""
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
            self._count = _one_by_one(self._count, weight * rows.shape[1])
            self._sum = _one_by_one(self._sum, weight * values.sum(axis=1))
            np.square(values, out=values)
            self._squares = _one_by_one(self._squares, weight * values.sum(axis=1))

    @property
    def variance(self) -> float:
        """Of the values so far."""
        mean = self._sum / self._count
        return max(0.0, self._squares / self._count - mean**2)


def _one_by_one(total: float, values: np.ndarray) -> float:
    """Total plus the values, added in their order: numpy's own sum has another one."""
    return float(np.cumsum(np.concatenate([[total], values]))[-1])
