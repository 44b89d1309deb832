"""Kernel columns kept within a bound of memory, fetched in batches."""

import numpy as np

from bigsvm.backends import COLUMN_BATCH, Backend
from bigsvm.core.compiled import njit
from bigsvm.kernels.tiles import PACK
from bigsvm.solvers.guesses import insert, likely

# While guesses that wait to be used have this share of the slots there are no more, but for those
# that fill a pack: they would cost columns that are in use.
_WAITING = 3 / 4
# A guess that is not used within so many fetches is given up.
_PATIENCE = 512
EMPTY, _GUESSED, _NEEDED = -1, -2, -3


def space_for_columns(nbytes: int, n: int) -> np.ndarray:
    """Space for columns of n patterns in `nbytes`: two at least, all at most."""
    return np.empty(n * max(2, min(nbytes // (4 * n), n)), np.float32)


class ColumnCache:
    """As many columns as fit in `space` (float32); at least the two of one step.

    With a missing column others are fetched that may be wanted next, for a sweep over the data for
    many columns costs little more than for one.

    Toward its end a training takes the patterns in turns, all of them, again and again: whoever was
    used last is wanted last. So where there are more than fit, the column used last is the first to
    go: of those that stay some are used in every turn, where of the ones used last none would be.

    What is kept decides only about time: a column is the same bits whenever it is computed.

    Attributes
    ----------
    columns : (capacity, n) float32
    slot : (n,) int32
        Where the column of a pattern is; -1 where it is not.
    last_used : (capacity,) int64
        When a column was used last; whoever takes one from `columns` writes `now` here.
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

    def fetch(self, s: int, v: int, gradient: np.ndarray, role: np.ndarray) -> None:
        """Have the columns of s and v at hand; gradient and role say what may be wanted next."""
        self.now += 1
        wanted, slots = _choose(
            s, v, gradient, role, self.slot, self.last_used, self._owner, self._fetched, self.now
        )
        self._backend.columns(self._backend.gather(wanted), self.columns, slots)
        _note(wanted, slots, self.slot, self.last_used, self._owner, self._fetched, self.now)


# Compiled, for after each sweep over the data Python's own code has left the processor's caches: a
# dozen lines of it take as long as half the columns of a hot set.


@njit(cache=True, nogil=True)
def _choose(s, v, gradient, role, slot, last_used, owner, fetched, now):  # type: ignore[no-untyped-def]
    """Whose columns to fetch, and the slots for them, which are emptied."""
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
    guesses = likely(gradient, role, slot, s, v, max(0, batch - count))
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
def _note(wanted, slots, slot, last_used, owner, fetched, now):  # type: ignore[no-untyped-def]
    """That the columns are there."""
    for i, k in zip(wanted, slots):  # noqa: B905 (numba knows no strict)
        slot[i] = k
        owner[k] = i
        fetched[k] = now
        last_used[k] = _GUESSED


@njit(cache=True, nogil=True)
def _first_to_go(last_used, fetched, stale, count):  # type: ignore[no-untyped-def]
    """Slots that are empty; then of guesses fetched before `stale`; then those used last.

    And where there are no more, of the oldest guesses.
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
