"""Which rows are test rows: a seeded choice that needs no memory."""

from collections.abc import Iterator

import numpy as np

BLOCK_ROWS = 2**16


class TestChoice:
    """Exactly `test_rows` of `n` rows, every such set equally likely; asked for in row order.

    A block's share of the test rows is drawn first (a hypergeometric number), then its rows.
    """

    __test__ = False  # not a test, whatever pytest makes of the name

    def __init__(self, n: int, test_rows: int, seed: int) -> None:
        self._masks = self._blocks(n, test_rows, np.random.default_rng(seed))
        self._pending = np.zeros(0, dtype=bool)

    def next(self, count: int) -> np.ndarray:
        """A mask of the next `count` rows: True where a row is a test row."""
        while len(self._pending) < count:
            self._pending = np.concatenate([self._pending, next(self._masks)])
        mask, self._pending = self._pending[:count], self._pending[count:]
        return mask

    @staticmethod
    def _blocks(n: int, test_rows: int, random: np.random.Generator) -> Iterator[np.ndarray]:
        left = test_rows
        for start in range(0, n, BLOCK_ROWS):
            size = min(BLOCK_ROWS, n - start)
            share = int(random.hypergeometric(left, n - start - left, size))
            mask = np.zeros(size, dtype=bool)
            mask[random.choice(size, share, replace=False)] = True
            left -= share
            yield mask
