"""Kernel columns kept within a bound of memory, fetched in batches."""

from collections.abc import Callable

import numpy as np

from bigsvm.backends import Backend

# Columns fetched together: whole packs of the kernels, and most of the guesses are used.
BATCH = 24


def space_for_columns(nbytes: int, n: int) -> np.ndarray:
    """Space for columns of n patterns in `nbytes`: two at least, all at most."""
    return np.empty(n * max(2, min(nbytes // (4 * n), n)), np.float32)


class ColumnCache:
    """The columns used last, as many as fit in `space` (float32); at least the two of one step.

    With a missing column others are fetched that may be wanted next, for a sweep over the data for
    many columns costs little more than for one.

    What is kept decides only about time: a column is the same bits whenever it is computed.

    Attributes
    ----------
    columns : (capacity, n) float32
    slot : (n,) int32
        Where the column of a pattern is; -1 where it is not.
    last_used : (capacity,) int64
        The iteration that used a column last; whoever takes one from `columns` writes it here.
    """

    def __init__(self, backend: Backend, space: np.ndarray) -> None:
        capacity = min(len(space) // backend.n, backend.n)
        self.columns = space[: capacity * backend.n].reshape(capacity, backend.n)
        self.slot = np.full(backend.n, -1, np.int32)
        self.last_used = np.full(capacity, -1, np.int64)
        self._backend = backend
        self._owner = np.full(capacity, -1, np.int64)
        self._taken = 0

    def fetch(self, s: int, v: int, now: int, likely: Callable[[int], np.ndarray]) -> None:
        """Have the columns of s and v at hand.

        ``likely(count)`` names patterns without a column that may be wanted next.
        """
        missing = [i for i in dict.fromkeys((s, v)) if self.slot[i] < 0]
        kept = [self.slot[i] for i in dict.fromkeys((s, v)) if self.slot[i] >= 0]
        # Not to be evicted: other classes, on the same cache, may count later iterations.
        self.last_used[kept] = np.iinfo(np.int64).max
        self.slot[missing] = len(self.last_used)  # not to be guessed
        spare = min(BATCH, len(self.last_used) - 2) - len(missing)
        guesses = likely(spare) if spare > 0 else np.empty(0, np.int64)
        wanted = np.concatenate([np.array(missing), guesses])
        slots = self._slots_for(len(wanted))
        self._backend.columns(self._backend.gather(wanted), self.columns, slots)
        self.slot[wanted] = slots
        self._owner[slots] = wanted
        self.last_used[slots] = now
        self.last_used[kept] = now

    def _slots_for(self, count: int) -> np.ndarray:
        """Empty slots while there are some, then the ones unused for longest."""
        capacity = len(self.last_used)
        if self._taken + count <= capacity:
            self._taken += count
            return np.arange(self._taken - count, self._taken)
        self._taken = capacity
        slots = np.argpartition(self.last_used, count - 1)[:count]
        evicted = self._owner[slots]
        self.slot[evicted[evicted >= 0]] = -1
        return slots
