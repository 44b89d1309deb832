"""The `block` schedule: hundreds of iterations for one pass over the data.

Choose a hot set of patterns near the extremes of the gradient; let the exact schedule loose on it
alone; then one product with the patterns that moved brings the whole gradient up to date. The
theorem of the paper still holds: the working set only grows, a joining pattern has a negative
derivative, and the stop test is made on the whole, fresh gradient.
"""

from collections.abc import Callable, Iterator

import numpy as np

from bigsvm.backends.in_memory import InMemoryBackend
from bigsvm.kernels import Kernel
from bigsvm.solvers.exact import ExactSchedule
from bigsvm.solvers.problem import Problem
from bigsvm.solvers.state import IDLE, SUPPORT, State

# Leave the hot set when its gap has about halved: what comes after would be undone by the next one.
_ENOUGH = 0.55
# When that takes fewer than this share of p iterations, while the patterns outside are as far apart,
# the hot set was too narrow: it is widened for the next pass.
_TOO_SOON = 0.25
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
        self._memory = memory
        self._pause_at = pause_at

    def run(self, state: State) -> Iterator[State]:
        """Take steps until the gap is closed.

        Yields `state` after each pass, and a state of its own, whose gradient is not up to date, at
        the iterations asked for in between; `state` itself is left alone until the pass.
        """
        problem, y = self._problem, self._problem.y
        while True:
            p = state.hot_set
            state.gap, closed = problem.stop_test(state, state.gradient)
            if closed:
                return
            hot = self._hot_set(state)
            too_narrow = self._can_widen(p) and self._gap_outside(state, hot) > 0.5 * state.gap
            rows = problem.backend.gather(hot)
            part = State(state.alpha[hot], state.gradient[hot], state.role[hot], state.iteration)
            for _ in self._steps(part, rows, y[hot], p, state.gap):
                if self._pause_at(part.iteration):
                    yield self._with_part(state, hot, part)
            change = part.alpha - state.alpha[hot]
            moved = np.flatnonzero(change)
            state.gradient += problem.gradient_change(hot[moved], change[moved], rows[moved])
            state.alpha[hot] = part.alpha
            state.role[hot] = part.role
            if too_narrow and part.iteration - state.iteration < _TOO_SOON * p:
                state.hot_set = 2 * p
            state.iteration = part.iteration
            state.passes += 1
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
        for _ in ExactSchedule(problem, self._memory).run(part):
            yield
            if not is_all and (part.iteration >= last or part.gap <= _ENOUGH * whole_gap):
                return

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

    def _can_widen(self, p: int) -> bool:
        return p < _WIDEST and 6 * p < len(self._problem.y)

    @staticmethod
    def _gap_outside(state: State, hot: np.ndarray) -> float:
        """The gap between patterns that are not in the hot set."""
        g, outside = state.gradient, np.ones(len(state.gradient), bool)
        outside[hot] = False
        support = g[outside & (state.role == SUPPORT)]
        in_play = g[outside & ((state.role != IDLE) | (g < 0))]
        return float(support.max() - in_play.min()) if len(support) else -np.inf

    @staticmethod
    def _with_part(state: State, hot: np.ndarray, part: State) -> State:
        now = State(
            state.alpha.copy(),
            state.gradient,
            state.role.copy(),
            part.iteration,
            state.passes,
            part.gap,
            state.hot_set,
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
