"""Kernel columns kept within a bound of memory, fetched in batches."""

from typing import Any, NamedTuple

import numpy as np

from bigsvm.backends import COLUMN_BATCH, Backend
from bigsvm.core.compiled import inner_njit, njit
from bigsvm.kernels.tiles import PACK
from bigsvm.solvers.state import IDLE, SUPPORT
from bigsvm.solvers.steps import CachedColumns

# Prefetched columns that have not been used yet may fill this share of the slots; beyond it only as
# many are prefetched as complete a pack, because each evicts a column that is in use.
_WAITING = 3 / 4
# A prefetched column that is not used within this many fetches is evicted.
_PATIENCE = 512
EMPTY, _GUESSED, _NEEDED = -1, -2, -3


def space_for_columns(nbytes: int, n: int) -> np.ndarray:
    """Space for columns of n patterns in `nbytes`: two at least, all at most."""
    return np.empty(n * max(2, min(nbytes // (4 * n), n)), np.float32)


class _Slots(NamedTuple):
    """Of each pattern its slot (-1: none); of each slot its last use, its owner, its fetch."""

    slot: Any
    last_used: Any
    owner: Any
    fetched: Any


class ColumnCache:
    """As many columns as fit in `space` (float32); at least the two of one step.

    With a missing column others are prefetched, since a sweep over the data for many columns costs
    little more than for one.

    Near convergence the access pattern is cyclic, so the most recently used column is evicted
    first: some of those that stay are then used in every cycle, where of the least recently used
    none would be.

    What is cached decides only about time: a column is the same bits whenever it is computed.

    Attributes
    ----------
    columns : (capacity, n) float32
    slot : (n,) int32
        Where the column of a pattern is; -1 where it is not.
    last_used : (capacity,) int64
        When a column was used last; the steps that use one write `now` here.
    now : int
        Counts the fetches.
    """

    def __init__(self, backend: Backend, space: np.ndarray) -> None:
        capacity = min(len(space) // backend.n, backend.n)
        self.columns = space[: capacity * backend.n].reshape(capacity, backend.n)
        self.slot = np.full(backend.n, -1, np.int32)
        self.last_used = np.full(capacity, EMPTY, np.int64)
        self.now = 0
        self._backend = backend
        self._owner = np.full(capacity, -1, np.int64)
        self._fetched = np.zeros(capacity, np.int64)

    @property
    def at_hand(self) -> CachedColumns:
        """The cache as compiled code sees it."""
        return CachedColumns(self.columns, self.slot, self.last_used, self.now)

    def fetch(self, s: int, v: int, gradient: np.ndarray, role: np.ndarray) -> None:
        """Cache the columns of s and v; gradient and role say which may be needed next."""
        self.now += 1
        cache = _Slots(self.slot, self.last_used, self._owner, self._fetched)
        wanted, slots = _choose(s, v, gradient, role, cache, self.now)
        self._backend.columns(self._backend.gather(wanted), self.columns, slots)
        _note(wanted, slots, cache, self.now)


# Compiled: after each sweep over the data the interpreter's own code has left the processor's
# caches, so that a dozen lines of Python would take as long as half the columns of a hot set.


@njit(cache=True, nogil=True)
def _choose(s, v, gradient, role, cache, now):  # type: ignore[no-untyped-def]
    """Whose columns to fetch, and the slots for them, which are emptied."""
    slot, last_used, owner, fetched = cache
    capacity = len(last_used)
    missing = np.empty(2, np.int64)
    count = 0
    for i in (s, v):
        if slot[i] < 0:
            missing[count] = i
            count += 1
        else:
            last_used[slot[i]] = _NEEDED
    room = int(_WAITING * capacity) - np.count_nonzero(last_used == _GUESSED)
    batch = min(max(PACK, min(COLUMN_BATCH, room)), capacity - 2)
    guesses = prefetch_candidates(gradient, role, slot, s, v, max(0, batch - count))
    wanted = np.concatenate((missing[:count], guesses))
    slots = _first_to_go(last_used, fetched, now - _PATIENCE, len(wanted))
    # A step on other nodes may follow, so nothing stays needed after this.
    for i in (s, v):
        if slot[i] >= 0:
            last_used[slot[i]] = now
    for k in slots:
        if last_used[k] != EMPTY:
            slot[owner[k]] = -1
            last_used[k] = EMPTY
    return wanted, slots


@njit(cache=True, nogil=True)
def _note(wanted, slots, cache, now):  # type: ignore[no-untyped-def]
    """Note that the columns are cached."""
    slot, last_used, owner, fetched = cache
    for i, k in zip(wanted, slots):  # noqa: B905 (numba knows no strict)
        slot[i] = k
        owner[k] = i
        fetched[k] = now
        last_used[k] = _GUESSED


@inner_njit(cache=True, nogil=True)
def _first_to_go(last_used, fetched, stale, count):  # type: ignore[no-untyped-def]
    """The slots to evict: empty ones, guesses from before `stale`, then the most recently used.

    If these are not enough, the oldest guesses.
    """
    far = 2.0**52
    rank, slots = np.full(count, -np.inf), np.full(count, -1)
    for i in range(len(last_used)):
        used = last_used[i]
        if used == EMPTY:
            merit = 2 * far
        elif used == _GUESSED:
            merit = (far if fetched[i] < stale else -far) - fetched[i]
        elif used == _NEEDED:
            continue
        else:
            merit = used
        if merit > rank[-1]:
            insert(rank, slots, merit, i)
    return slots


@njit(cache=True, nogil=True)
def prefetch_candidates(gradient, role, slot, s, v, count):  # type: ignore[no-untyped-def]
    """The patterns without a cached column that are the nearest to being chosen, but s and v.

    Half of them from the top of the support (all that are there without a column, if fewer), the
    rest from the bottom of the working set and of the idle patterns about to join.
    """
    highest, highest_index = np.full(count // 2, -np.inf), np.full(count // 2, -1)
    lowest, lowest_index = np.full(count, np.inf), np.full(count, -1)
    low_bar = np.inf if count > 0 else -np.inf
    high_bar = -np.inf if count > 1 else np.inf
    for i in range(len(gradient)):
        g = gradient[i]
        if g < low_bar:
            if slot[i] < 0 and (role[i] > IDLE or (role[i] == IDLE and g <= 0)) and i not in (s, v):
                insert(lowest, lowest_index, g, i)
                low_bar = lowest[-1]
        elif g > high_bar and role[i] == SUPPORT and slot[i] < 0 and i not in (s, v):
            insert(highest, highest_index, g, i)
            high_bar = highest[-1]
    # numpy's own functions for this would take as long to compile as all of the above.
    found, n = np.empty(count, np.int64), 0
    for indices in (highest_index, lowest_index):
        for i in indices:
            if i >= 0 and n < count:
                found[n] = i
                n += 1
    return found[:n]


@inner_njit(cache=True, nogil=True)
def insert(values, indices, value, index):  # type: ignore[no-untyped-def]
    """Insert into a sorted run, the last falling out; ascending or descending as it is.

    Ties keep their order.
    """
    ascending = value < values[-1]
    k = len(values) - 1
    while k > 0 and (value < values[k - 1]) == ascending and value != values[k - 1]:
        values[k], indices[k] = values[k - 1], indices[k - 1]
        k -= 1
    values[k], indices[k] = value, index
