"""The `block` schedule: hundreds of iterations for one pass over the data.

Choose a hot set of patterns near the extremes of the gradient; let the exact schedule loose on it
alone; then one product with the patterns that moved brings the whole gradient up to date. The
theorem of the paper still holds: the working set only grows, a joining pattern has a negative
derivative, and the stop test is made on the whole, fresh gradient.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from bigsvm.backends.in_memory import InMemoryBackend
from bigsvm.kernels import Kernel
from bigsvm.solvers.column_cache import space_for_columns
from bigsvm.solvers.exact import ExactSchedule
from bigsvm.solvers.problem import Problem
from bigsvm.solvers.state import IDLE, SUPPORT, State

# Leave the hot set when its gap has about halved: what comes after would be undone by the next one.
_ENOUGH = 0.55
# After so many passes without a new lowest gap the hot set is too narrow: it is widened.
_PATIENCE = 3
_WIDEST = 8192


class BlockSchedule:
    """Iterations on hot sets, a pass over the data after each.

    Parameters
    ----------
    problem : Problem
    kernel : Kernel
    memory : int
        Bytes for the kernel columns of a hot set.
    pause_at : callable
        Whether to yield at an iteration in the middle of a hot set (a snapshot is due, or the end).
    """

    def __init__(
        self,
        problem: Problem,
        kernel: Kernel,
        memory: int,
        pause_at: Callable[[int], bool] = lambda iteration: False,
    ) -> None:
        self._problem = problem
        self._kernel = kernel
        self._space = np.empty(0, np.float32)
        self._memory = memory
        self._pause_at = pause_at

    def run(self, state: State) -> Iterator[State]:
        """Take steps until the gap is closed.

        Yields `state` after each pass, and a state of its own, whose gradient is not up to date, at
        the iterations asked for in between; `state` itself is left alone until the pass.
        """
        problem, y = self._problem, self._problem.y
        state.gap, closed = problem.stop_test(state, state.gradient)
        while not closed:
            hot = self._hot_set(state)
            rows = problem.backend.gather(hot)
            part = State(state.alpha[hot], state.gradient[hot], state.role[hot], state.iteration)
            for _ in self._steps(part, rows, y[hot], state.hot_set, state.gap):
                if self._pause_at(part.iteration):
                    yield self._with_part(state, hot, part)
            change = part.alpha - state.alpha[hot]
            moved = np.flatnonzero(change)
            state.gradient += problem.gradient_change(hot[moved], change[moved], rows[moved])
            state.alpha[hot] = part.alpha
            state.role[hot] = part.role
            state.iteration = part.iteration
            state.passes += 1
            state.gap, closed = problem.stop_test(state, state.gradient)
            self._widen_if_stalled(state)
            yield state

    def _steps(
        self, part: State, rows: np.ndarray, y: np.ndarray, p: int, whole_gap: float
    ) -> Iterator[None]:
        """Exact iterations on the hot set, until it has given what it has to give."""
        whole = self._problem
        backend = InMemoryBackend(rows, self._kernel)
        problem = Problem(backend, y, whole.C, whole.algorithm, whole.tolerance)
        last = part.iteration + p
        is_all = len(y) == len(whole.y)
        for _ in ExactSchedule(problem, self._space_for(len(y))).run(part):
            yield
            if not is_all and (part.iteration >= last or part.gap <= _ENOUGH * whole_gap):
                return

    def _space_for(self, n: int) -> np.ndarray:
        """Space for columns, the same from pass to pass: fresh memory is slow at first touch."""
        wanted = space_for_columns(self._memory, n)
        if len(wanted) > len(self._space):
            self._space = wanted
        return self._space

    def _hot_set(self, state: State) -> np.ndarray:
        """Of either class, p of the lowest idle, the lowest working, the highest in the support.

        Chosen over both classes together, one would fill the set, the next pass would swing back,
        and so on.
        """
        g, role, y, p = state.gradient, state.role, self._problem.y, state.hot_set
        if 6 * p >= len(y):
            return np.arange(len(y))
        chosen = []
        for sign in (-1, 1):
            of_class = y == sign
            chosen.append(lowest(g, of_class & (role == IDLE), p))
            chosen.append(lowest(g, of_class & (role != IDLE), p))
            chosen.append(lowest(-g, of_class & (role == SUPPORT), p))
        return np.unique(np.concatenate(chosen))

    def _widen_if_stalled(self, state: State) -> None:
        if state.gap < state.lowest_gap:
            state.lowest_gap, state.stalled = state.gap, 0
            return
        state.stalled += 1
        if state.stalled >= _PATIENCE and state.hot_set < _WIDEST:
            state.hot_set, state.stalled = 2 * state.hot_set, 0

    @staticmethod
    def _with_part(state: State, hot: np.ndarray, part: State) -> State:
        now = replace(
            state,
            alpha=state.alpha.copy(),
            role=state.role.copy(),
            iteration=part.iteration,
            gap=part.gap,
        )
        now.alpha[hot] = part.alpha
        now.role[hot] = part.role
        return now


def lowest(values: np.ndarray, eligible: np.ndarray, count: int) -> np.ndarray:
    """The indices of the `count` lowest eligible values; among equals the lower index goes first.

    Only the value at the border is taken from numpy's partition, whose order of equals differs
    between machines.
    """
    index = np.flatnonzero(eligible)
    if len(index) <= count:
        return index
    candidates = values[index]
    border = np.partition(candidates, count - 1)[count - 1]
    below = index[candidates < border]
    return np.concatenate([below, index[candidates == border][: count - len(below)]])
