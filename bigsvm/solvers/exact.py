"""The `exact` schedule: the paper's loop, iterate by iterate."""

from collections.abc import Iterator

import numpy as np
from numba import get_num_threads, njit

from bigsvm.errors import UserError
from bigsvm.solvers.column_cache import ColumnCache
from bigsvm.solvers.nodes import find_nodes, update_gradient
from bigsvm.solvers.problem import Problem
from bigsvm.solvers.state import IDLE, SUPPORT, WORKING, State
from bigsvm.threads import threads

# With fewer patterns, waiting for the other threads costs more than they save.
_WORTH_THREADS = 32_768


class ExactSchedule:
    """One pattern joins at most, then one pairwise step, in every iteration.

    Parameters
    ----------
    problem : Problem
    space : (size,) float32
        Where kernel columns are kept; see `space_for_columns`.
    """

    def __init__(self, problem: Problem, space: np.ndarray) -> None:
        self._problem = problem
        self._cache = ColumnCache(problem.backend, space)

    def run(self, state: State) -> Iterator[State]:
        """Take steps until the gap is closed; yields after each one, with `state` up to date."""
        worth_threads = len(state.alpha) >= _WORTH_THREADS
        with threads(get_num_threads() if worth_threads else 1):
            yield from self._steps(state)

    def _steps(self, state: State) -> Iterator[State]:
        y, C, alpha, g = self._problem.y, self._problem.C, state.alpha, state.gradient
        nodes = find_nodes(state)
        while True:
            s, v = nodes.toward, nodes.away
            joins = nodes.idle >= 0 and g[nodes.idle] < 0
            if joins:
                state.role[nodes.idle] = WORKING
                s = min(s, nodes.idle, key=lambda i: (g[i], i))
            state.gap = float(g[v]) - float(g[s])
            if state.gap <= self._problem.tolerance and not joins:
                return
            k_s, k_v = self._cache.pair(s, v, lambda count: self._likely(state, count))
            q_ss, q_vv = float(k_s[s]) + 1 / C, float(k_v[v]) + 1 / C
            q_sv = float(y[s] * y[v]) * float(k_s[v])
            step = min(state.gap / (q_ss + q_vv - 2 * q_sv), alpha[v])
            if not step > 0:
                raise overflowed(state)
            move(state, s, v, step)
            nodes = update_gradient(state, y, C, step, s, v, k_s, k_v)
            state.iteration += 1
            yield state

    def _likely(self, state: State, count: int) -> np.ndarray:
        return _likely(state.gradient, state.role, self._cache.cached, count)


def move(state: State, s: int, v: int, step: float) -> None:
    """Move `step` of weight from v to s."""
    state.alpha[s] += step
    state.alpha[v] -= step
    state.role[s] = SUPPORT
    if state.alpha[v] == 0:
        state.role[v] = WORKING


def overflowed(state: State) -> UserError:
    """The loop cannot go on: its numbers left the range of floating point."""
    return UserError(
        f"iteration {state.iteration}: the gap is {state.gap}, no step can be taken; kernel values "
        "leave the range of float32 or the tolerance that of float64: scale the data "
        "(data.prepare.scaling) or raise solver.tolerance"
    )


@njit(cache=True, nogil=True)
def _likely(gradient, role, cached, count):  # type: ignore[no-untyped-def]
    """The patterns without a cached column that are the nearest to being chosen.

    Half of them from the top of the support (all that are there without a column, if fewer), the
    rest from the bottom of the working set and of the idle patterns about to join.
    """
    highest, highest_index = np.full(count // 2, -np.inf), np.full(count // 2, -1)
    lowest, lowest_index = np.full(count, np.inf), np.full(count, -1)
    for i in range(len(gradient)):
        g = gradient[i]
        if cached[i] or (role[i] == IDLE and g >= 0):
            continue
        if g < lowest[-1]:
            _insert(lowest, lowest_index, g, i)
        elif role[i] == SUPPORT and len(highest) and g > highest[-1]:
            _insert(highest, highest_index, g, i)
    found = np.concatenate((highest_index[highest_index >= 0], lowest_index[lowest_index >= 0]))
    return found[:count]


@njit(cache=True, nogil=True)
def _insert(values, indices, value, index):  # type: ignore[no-untyped-def]
    """Insert into a sorted run, the last falling out; ascending or descending as it is."""
    ascending = value < values[-1]
    k = len(values) - 1
    while k > 0 and (value < values[k - 1]) == ascending and value != values[k - 1]:
        values[k], indices[k] = values[k - 1], indices[k - 1]
        k -= 1
    values[k], indices[k] = value, index
