"""Kernel columns of a hot set, kept from one hot set to the next as far as their patterns stay."""

import numpy as np

from bigsvm.backends import Backend
from bigsvm.backends.products import GatheredRows
from bigsvm.core.compiled import njit
from bigsvm.kernels import LANES, Kernel, block_of, columns
from bigsvm.solvers.column_cache import EMPTY, ColumnCache
from bigsvm.solvers.conjugate import Columns

# Space at the end of each column for the patterns of later hot sets: a share of its length.
_SLACK = 8


class HotColumns(ColumnCache):
    """A column cache whose patterns change: those that stay keep their columns.

    The patterns of a hot set are in the order in which they came. Nothing that is computed depends
    on it, so a resumed run, which begins with none, gives the same bits.

    Parameters
    ----------
    kernel : Kernel
    nbytes : int
        For the columns; at least two are kept.
    most : int
        The most patterns of a hot set.
    """

    def __init__(self, kernel: Kernel, nbytes: int, most: int) -> None:
        self._kernel = kernel
        longest = _with_slack(most)
        # Memory that is never written to costs nothing.
        self._space = np.empty(longest * max(2, min(nbytes // (4 * longest), longest)), np.float32)
        self._index = np.empty(0, np.int64)
        self._stride = 0
        self.columns = np.empty((0, 0), np.float32)
        self.slot = np.empty(0, np.int32)
        self.last_used = np.empty(0, np.int64)
        self.now = 0
        self._owner = np.empty(0, np.int64)
        self._fetched = np.empty(0, np.int64)

    @property
    def at_hand(self) -> Columns:
        """What compiled code takes."""
        return Columns(self.columns, self.slot, self.last_used)

    def arrange(self, index: np.ndarray) -> np.ndarray:
        """Patterns `index` of the data, ascending, in the order that moves the fewest columns."""
        stay = np.isin(self._index, index, assume_unique=True)
        new = np.setdiff1d(index, self._index, assume_unique=True)
        return np.concatenate([self._index[stay], new])

    def follow(self, index: np.ndarray, backend: Backend) -> None:
        """Turn to the hot set of the patterns `index`, which `backend` serves in that order.

        `index` is as `arrange` returned it.
        """
        stay = np.flatnonzero(np.isin(self._index, index, assume_unique=True))
        if not np.array_equal(self._index[stay], index[: len(stay)]):
            raise ValueError("the patterns that stay come first, in the order that they had")
        m = len(index)
        owners = np.flatnonzero(self.slot[stay] >= 0)  # by their new places
        owners = owners[np.argsort(self.slot[stay[owners]])]
        _compact(self._space, self._stride, self.slot[stay[owners]].astype(np.int64), stay)
        stride = self._stride if m <= self._stride else _with_slack(m)
        capacity = min(len(self._space) // stride, stride)
        owners = owners[:capacity]
        _spread(self._space, self._stride, stride, len(owners))
        self._stride = stride
        self.columns = self._space[: capacity * stride].reshape(capacity, stride)
        self._index = index
        self.slot = np.full(stride, -1, np.int32)
        self.slot[owners] = np.arange(len(owners))
        self.last_used = np.full(capacity, EMPTY, np.int64)
        self.last_used[: len(owners)] = self.now
        self._owner = np.full(capacity, -1, np.int64)
        self._owner[: len(owners)] = owners
        self._fetched = np.zeros(capacity, np.int64)
        self._backend = backend
        if len(owners) and len(stay) < m:
            self._extend(owners, len(stay), m)

    def _extend(self, owners: np.ndarray, start: int, stop: int) -> None:
        """Compute what the columns at hand lack: their values at the new patterns."""
        rows, slots = self._backend.gather(owners), np.arange(len(owners))
        new = GatheredRows(self._backend, np.arange(start, stop), self._backend.rows_at_once)
        for piece in new:
            self._backend.kernel_values.add_columns(rows, len(piece))
            columns(self._kernel, block_of(piece, start), rows, self.columns, slots)
            start += len(piece)


def _with_slack(length: int) -> int:
    """The distance between columns of this length: room for a few more patterns, whole panels."""
    return -(-(length + length // _SLACK) // LANES) * LANES


@njit(cache=True, nogil=True)
def _compact(space, stride, kept, stay):  # type: ignore[no-untyped-def]
    """Move the columns in slots `kept` (ascending) to the first slots, entries `stay` of each."""
    fixed = 0  # entries that keep their places
    while fixed < len(stay) and stay[fixed] == fixed:
        fixed += 1
    for slot in range(len(kept)):
        begin, source = slot * stride, kept[slot] * stride
        if begin != source:
            for i in range(fixed):
                space[begin + i] = space[source + i]
        for i in range(fixed, len(stay)):
            space[begin + i] = space[source + stay[i]]


@njit(cache=True, nogil=True)
def _spread(space, stride, wider, used):  # type: ignore[no-untyped-def]
    """Lay `used` columns out further apart."""
    if wider > stride:
        for slot in range(used - 1, 0, -1):
            for i in range(stride - 1, -1, -1):
                space[slot * wider + i] = space[slot * stride + i]
