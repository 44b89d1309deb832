"""Kernel columns of a hot set, reused by the next one for the patterns that both have."""

import numpy as np
from numba import prange

from bigsvm.backends import COLUMN_BATCH, Backend
from bigsvm.backends.products import GatheredRows
from bigsvm.core.compiled import njit, parallel_njit
from bigsvm.kernels import LANES, Kernel, block_of, columns
from bigsvm.solvers.column_cache import prefetch_candidates
from bigsvm.solvers.conjugate import Columns

# Space at the end of each column for the patterns of later hot sets: a share of its length.
_SLACK = 8
# Of the memory, the share for new values of cached columns on their way to their places.
_STAGING = 8


class HotColumns:
    """A column cache whose patterns change: those that stay keep their columns and their places.

    A new pattern takes the place of one that left, so that hardly any value moves. Nothing that is
    computed depends on the order of the patterns or on which columns are cached, so a resumed run,
    which begins with an empty cache, gives the same bits.

    The next nodes are the extremes of the gradient, and a step moves its nodes to the middle. So
    the column whose pattern is nearest to the middle is evicted first. Columns are prefetched only
    into empty slots: any other would cost one that is as likely to be used.

    Parameters
    ----------
    kernel : Kernel
    nbytes : int
        For the columns; at least two are kept.
    most : int
        The most patterns of a hot set.

    Attributes
    ----------
    columns : (capacity, width) float32
    slot : (width,) int32
        Where the column of a pattern is; -1 where it is not.
    """

    def __init__(self, kernel: Kernel, nbytes: int, most: int) -> None:
        self._kernel = kernel
        longest = _with_slack(most)
        self._staging = max(LANES * LANES, nbytes // (4 * _STAGING))  # values
        fitting = (nbytes - 4 * self._staging) // (4 * longest)
        # Memory that is never written to costs nothing.
        self._space = np.empty(longest * max(2, min(fitting, longest)), np.float32)
        self._index = np.empty(0, np.int64)
        self.columns = np.empty((0, 0), np.float32)
        self.slot = np.empty(0, np.int32)
        self._owner = np.empty(0, np.int64)  # of each slot, -1 where it is empty

    @property
    def at_hand(self) -> Columns:
        """The cache as compiled code sees it."""
        return Columns(self.columns, self.slot)

    def arrange(self, index: np.ndarray) -> np.ndarray:
        """Patterns `index` of the data, ascending, in the order that moves the fewest values."""
        stays = np.isin(self._index, index, assume_unique=True)
        arranged = np.full(len(index), -1, np.int64)
        kept = np.flatnonzero(stays[: len(index)])
        arranged[kept] = self._index[kept]
        last = self._index[len(index) :][stays[len(index) :]]
        new = np.setdiff1d(index, self._index, assume_unique=True)
        arranged[arranged < 0] = np.concatenate([last, new])
        return arranged

    def follow(self, index: np.ndarray, backend: Backend) -> None:
        """Turn to the hot set of the patterns `index`, which `backend` serves in that order.

        `index` is as `arrange` returned it.
        """
        _, places, new_places = np.intersect1d(
            self._index, index, assume_unique=True, return_indices=True
        )
        moved = places != new_places
        if (places[moved] < len(index)).any():
            raise ValueError("patterns that stay keep their places, where these still exist")
        self._release(places)
        if len(index) >= self.columns.shape[1]:
            self._widen(_with_slack(len(index)))
        _move_entries(self.columns, self._owner, places[moved], new_places[moved])
        slot = np.full(self.columns.shape[1], -1, np.int32)
        slot[new_places] = self.slot[places]
        cached = np.flatnonzero(slot >= 0)
        self.slot = slot
        self._owner[slot[cached]] = cached
        self._index, self._backend = index, backend
        is_new = np.ones(len(index), bool)
        is_new[new_places] = False
        self._extend(cached, np.flatnonzero(is_new))

    def _release(self, stay: np.ndarray) -> None:
        """Empty the slots of patterns that are not in the places `stay`."""
        leaves = np.ones(len(self._index), bool)
        leaves[stay] = False
        slots = self.slot[: len(self._index)][leaves]
        slots = slots[slots >= 0]
        self._owner[slots] = -1

    def _widen(self, width: int) -> None:
        """Lay the columns out further apart; those beyond the new capacity are lost."""
        narrow = self.columns
        capacity = min(len(self._space) // width, width)
        self.columns = self._space[: capacity * width].reshape(capacity, width)
        _spread(self._space, narrow.shape[1], width, min(len(narrow), capacity))
        lost = self._owner[capacity:]
        self.slot[lost[lost >= 0]] = -1
        self._owner = np.concatenate(
            [self._owner[:capacity], np.full(max(0, capacity - len(narrow)), -1)]
        )

    def fetch(self, needed: int, kept: int, gradient: np.ndarray, role: np.ndarray) -> None:
        """Cache the column of the place `needed`, without evicting that of `kept`."""
        wanted, slots = _choose(needed, kept, gradient, role, self.slot, self._owner)
        self._backend.columns(self._backend.gather(wanted), self.columns, slots)
        self.columns[slots, len(self._index)] = 0.0  # for the reservoir
        evicted = self._owner[slots]
        self.slot[evicted[evicted >= 0]] = -1
        self.slot[wanted], self._owner[slots] = slots, wanted

    def add_reservoir(self) -> None:
        """Let the place after the last pattern have a column, and a value in all columns.

        Steps multiply them by 0, so that any numbers will do.
        """
        place = len(self._index)
        self.columns[self._owner >= 0, place] = 0.0
        if self._owner[0] < 0:
            self.columns[0] = 0.0
        self.slot[place] = 0

    def _extend(self, cached: np.ndarray, places: np.ndarray) -> None:
        """Extend the cached columns by their values at the new patterns in `places`."""
        if not len(cached) or not len(places):
            return
        rows, slots = self._backend.gather(cached), self.slot[cached].astype(np.int64)
        at_once = max(LANES, self._staging // len(cached) // LANES * LANES)
        values = np.empty((len(cached), min(at_once, len(places))), np.float32)
        for start in range(0, len(places), at_once):
            here = places[start : start + at_once]
            done = 0
            for piece in GatheredRows(self._backend, here, self._backend.rows_at_once):
                self._backend.kernel_values.add_columns(rows, len(piece))
                block = block_of(piece, done)
                columns(self._kernel, block, rows, values, np.arange(len(cached)))
                done += len(piece)
            _place(values, self.columns, slots, here)


def _with_slack(length: int) -> int:
    """The distance between columns of this length: room for a few more patterns, whole panels."""
    return -(-(length + length // _SLACK) // LANES) * LANES


@njit(cache=True, nogil=True)
def _choose(needed, kept, gradient, role, slot, owner):  # type: ignore[no-untyped-def]
    """Whose columns to fetch, `needed` first, and the slots for them."""
    # Loops, for numpy's functions take longer to compile.
    slots, empty = np.empty(COLUMN_BATCH, np.int64), 0
    for k in range(len(owner)):
        if owner[k] < 0 and empty < COLUMN_BATCH:
            slots[empty] = k
            empty += 1
    wanted = np.empty(COLUMN_BATCH, np.int64)
    wanted[0] = needed
    if empty > 0:
        guesses = prefetch_candidates(gradient, role, slot, needed, kept, empty - 1)
        count = 1 + len(guesses)
        for k in range(1, count):
            wanted[k] = guesses[k - 1]
        return wanted[:count], slots[:count]
    middle = (gradient[needed] + gradient[kept]) / 2
    nearest, slots[0] = np.inf, -1
    for k in range(len(owner)):
        distance = abs(gradient[owner[k]] - middle)
        if distance < nearest and owner[k] != kept:
            nearest, slots[0] = distance, k
    return wanted[:1], slots[:1]


@njit(cache=True, nogil=True)
def _move_entries(columns, owner, places, new_places):  # type: ignore[no-untyped-def]
    for slot in range(columns.shape[0]):
        if owner[slot] >= 0:
            for i in range(len(places)):
                columns[slot, new_places[i]] = columns[slot, places[i]]


@njit(cache=True, nogil=True)
def _spread(space, width, wider, used):  # type: ignore[no-untyped-def]
    """Lay `used` columns out further apart."""
    for slot in range(used - 1, 0, -1):
        for i in range(width - 1, -1, -1):
            space[slot * wider + i] = space[slot * width + i]


@parallel_njit(cache=True, nogil=True)
def _place(values, columns, slots, places):  # type: ignore[no-untyped-def]
    """Write the values of each column to its places."""
    for k in prange(len(slots)):
        column = columns[slots[k]]
        for i in range(len(places)):
            column[places[i]] = values[k, i]
