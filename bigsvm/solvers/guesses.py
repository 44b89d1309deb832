"""Which kernel columns are likely to be wanted next."""

import numpy as np

from bigsvm.core.compiled import njit
from bigsvm.solvers.state import IDLE, SUPPORT


@njit(cache=True, nogil=True)
def likely(gradient, role, slot, s, v, count):  # type: ignore[no-untyped-def]
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
    found = np.concatenate((highest_index[highest_index >= 0], lowest_index[lowest_index >= 0]))
    return found[:count]


@njit(cache=True, nogil=True)
def insert(values, indices, value, index):  # type: ignore[no-untyped-def]
    """Insert into a sorted run, the last falling out; ascending or descending as it is.

    Among equals whoever came first stays ahead.
    """
    ascending = value < values[-1]
    k = len(values) - 1
    while k > 0 and (value < values[k - 1]) == ascending and value != values[k - 1]:
        values[k], indices[k] = values[k - 1], indices[k - 1]
        k -= 1
    values[k], indices[k] = value, index
