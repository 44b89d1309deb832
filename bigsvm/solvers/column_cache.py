"""Kernel columns kept within a bound of memory, fetched in batches."""

from collections import OrderedDict
from collections.abc import Callable

import numpy as np

from bigsvm.backends import Backend

_LARGEST_BATCH = 24


def space_for_columns(nbytes: int, n: int) -> np.ndarray:
    """Space for columns of n patterns in `nbytes`: two at least, all at most."""
    return np.empty(n * max(2, min(nbytes // (4 * n), n)), np.float32)


class ColumnCache:
    """The columns used last, as many as fit in `space` (float32); at least the two of one step.

    With a missing column others are fetched that may be wanted next, for a sweep over the data for
    many columns costs little more than for one. As many as pays: the batch grows while most of
    the guesses are used, and shrinks while they are not.

    What is kept decides only about time: a column is the same bits whenever it is computed.
    """

    def __init__(self, backend: Backend, space: np.ndarray) -> None:
        self.capacity = min(len(space) // backend.n, backend.n)
        self._backend = backend
        self._columns = space[: self.capacity * backend.n].reshape(self.capacity, backend.n)
        self._slots: OrderedDict[int, int] = OrderedDict()
        self.cached = np.zeros(backend.n, bool)
        self._batch = 6
        self._guesses: set[int] = set()
        self._guessed = 0

    def pair(
        self, s: int, v: int, likely: Callable[[int], np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """The columns of s and v.

        Where one is missing, ``likely(count)`` names patterns whose columns may be wanted next.
        """
        for i in (s, v):
            if i in self._slots:
                self._slots.move_to_end(i)
                self._guesses.discard(i)
        missing = [i for i in dict.fromkeys((s, v)) if i not in self._slots]
        if missing:
            self._adapt()
            self.cached[missing] = True
            spare = min(self._batch, self.capacity - 2) - len(missing)
            guesses = likely(spare).tolist() if spare > 0 else []
            self._guesses.update(guesses)
            self._guessed += len(guesses)
            self._fetch(missing + guesses)
        return self._columns[self._slots[s]], self._columns[self._slots[v]]

    def _adapt(self) -> None:
        """Judge the last guesses, once there are enough of them."""
        if self._guessed < 2 * self._batch:
            return
        used = 1 - len(self._guesses) / self._guessed
        if used > 0.6:
            self._batch = min(_LARGEST_BATCH, self._batch + 2)
        elif used < 0.3:
            self._batch = max(4, self._batch - 2)
        self._guesses.clear()
        self._guessed = 0

    def _fetch(self, missing: list[int]) -> None:
        slots: list[int] = []
        for _ in missing:
            if len(self._slots) + len(slots) < self.capacity:
                slots.append(len(self._slots) + len(slots))
            else:
                evicted, slot = self._slots.popitem(last=False)
                self.cached[evicted] = False
                slots.append(slot)
        rows = self._backend.gather(np.array(missing))
        self._backend.columns(rows, self._columns, np.array(slots))
        # The guesses go in first, so that they leave before the columns in use.
        for i, slot in zip(reversed(missing), reversed(slots), strict=True):
            self._slots[i] = slot
            self.cached[i] = True
