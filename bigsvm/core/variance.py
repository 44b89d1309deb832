"""The variance over all values of a data set, from which `gamma: scale` is computed."""

import numpy as np

_PIECE = 65_536  # values


def scale_gamma(n_features: int, variance: float) -> float:
    """1 / (n_features * variance), scikit-learn's "scale"; 1 where all values are equal."""
    return 1 / (n_features * variance) if variance > 0 else 1.0


class VarianceAccumulator:
    """The variance of all values, accumulated over batches of rows.

    The result is bitwise independent of the batches: each row is summed by itself, then the sums
    are added one by one.

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
