"""Seeded synthetic data of two classes: a checkerboard seen through many noisy features."""

from collections.abc import Iterator

import numpy as np

from bigsvm.core.errors import UserError
from bigsvm.readers import MAX_FEATURES, Batch, Reader, batch_rows

# Rows are drawn in blocks of this size, each with its own seed, so that they do not depend on the
# number of rows or on the batches.
BLOCK_ROWS = 1024
CELLS = 4


class SyntheticReader:
    """Rows of a CELLS x CELLS checkerboard on a hidden plane; see `synthetic_reader`."""

    def __init__(self, rows: int, features: int, noise: float, seed: int) -> None:
        self.rows = rows
        self.d = features
        self.noise = noise
        self.seed = seed
        self.feature_names: list[str] | None = None
        # Directions spread evenly over the half circle make all features equally informative, so
        # that scaling them does not change the problem.
        angle = np.pi * np.arange(features) / features
        self._directions = np.stack([np.cos(angle), np.sin(angle)])

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order."""
        per_batch = batch_rows(self.d)
        for start in range(0, self.rows, BLOCK_ROWS):
            rows = min(BLOCK_ROWS, self.rows - start)
            rng = np.random.default_rng([self.seed, start // BLOCK_ROWS])
            hidden = rng.uniform(0.0, CELLS, size=(BLOCK_ROWS, 2))
            y = np.where(np.floor(hidden).sum(axis=1) % 2 == 0, -1.0, 1.0)
            seen = hidden - CELLS / 2 + rng.normal(scale=self.noise, size=hidden.shape)
            for low in range(0, rows, per_batch):
                part = slice(low, min(low + per_batch, rows))
                m = part.stop - low
                # Not a matrix product, whose rounding may depend on the number of rows.
                x = seen[part, :1] * self._directions[0] + seen[part, 1:] * self._directions[1]
                x += rng.normal(scale=self.noise / 2, size=(m, self.d))
                yield Batch(x, y[part], start + low + 1)


def synthetic_reader(rows: int, features: int, noise: float = 0.1, seed: int = 0) -> Reader:
    """Stream seeded data of two classes that are not linearly separable.

    Points are uniform on a checkerboard of 4 x 4 unit squares, and the colour of the square is the
    class. `noise` then displaces each point, so that the classes overlap: the best possible
    accuracy is 100 % at 0, about 88 % at 0.1, 78 % at 0.2. Each feature is the coordinate of the
    point along one direction, plus half as much noise of its own.

    Parameters
    ----------
    rows, features : int
        Size. A longer data set starts with the rows of a shorter one.
    noise : float
        Standard deviation of the displacement, in side lengths of a square.
    seed : int
        The same seed gives the same rows.
    """
    if rows < 1:
        raise UserError(f"synthetic data: rows must be at least 1, not {rows}")
    if not 2 <= features <= MAX_FEATURES:
        raise UserError(
            f"synthetic data: features must be from 2 to {MAX_FEATURES}, not {features}"
        )
    if not 0 <= noise < float("inf"):
        raise UserError(f"synthetic data: noise must be a number from 0 on, not {noise}")
    if seed < 0:
        raise UserError(f"synthetic data: seed must not be negative, not {seed}")
    return SyntheticReader(rows, features, noise, seed)
