"""Kernel columns kept within a bound of memory, fetched in batches."""

from collections import OrderedDict
from collections.abc import Callable

import numpy as np

from bigsvm.backends import Backend

# A sweep over the data for this many columns costs little more than for one: two packs of six.
BATCH = 12


class ColumnCache:
    """The columns used last, as many as fit in `nbytes`; at least the two of one step.

    What is kept decides only about time: a column is the same bits whenever it is computed.
    """

    def __init__(self, backend: Backend, nbytes: int) -> None:
        self.capacity = max(2, min(nbytes // (4 * backend.n), backend.n))
        self._backend = backend
        self._columns = np.empty((self.capacity, backend.n), np.float32)
        self._slots: OrderedDict[int, int] = OrderedDict()
        self.cached = np.zeros(backend.n, bool)

    def pair(
        self, s: int, v: int, likely: Callable[[int], np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """The columns of s and v.

        Where one is missing, ``likely(count)`` names patterns whose columns may be wanted next;
        they are fetched with it.
        """
        missing = [i for i in dict.fromkeys((s, v)) if i not in self._slots]
        for i in (s, v):
            if i in self._slots:
                self._slots.move_to_end(i)
        if missing:
            self.cached[missing] = True
            spare = min(BATCH, self.capacity - 2) - len(missing)
            if spare > 0:
                missing += likely(spare).tolist()
            self._fetch(missing)
        return self._columns[self._slots[s]], self._columns[self._slots[v]]

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
