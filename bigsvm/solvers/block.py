"""The `block` schedule: thousands of iterations for one pass over the data.

Choose a hot set of patterns near the extremes of the gradient; let the exact schedule loose on it
alone; then one product with the patterns that moved brings the whole gradient up to date. The
theorem of the paper still holds: the working set only grows, a joining pattern has a negative
derivative, and the stop test is made on the whole, fresh gradient.

The first hot set is a sample of the data: a model of it, however rough, saves dozens of passes. In
the last one nobody waits to join and all that work are in: it is solved to the end, and the pass
after it recomputes the gradient from alpha alone, as the end of a run asks for anyway.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from bigsvm.backends.in_memory import InMemoryBackend
from bigsvm.kernels import Kernel
from bigsvm.solvers.column_cache import space_for_columns
from bigsvm.solvers.exact import ExactSchedule, overflowed
from bigsvm.solvers.problem import Problem
from bigsvm.solvers.state import IDLE, SUPPORT, State

# Leave a hot set when its gap has come down to this share of the whole one: what comes after would
# be undone by the next one.
_ENOUGH = 0.7
# The sample is a fourth of the data, if that fits, and is left after a fourth as many iterations.
_SAMPLED = 4
# No hot set is worked on for longer than so many iterations a pattern: what is done there is not
# safe before the pass.
_LONGEST = 2
# After so many passes without a new lowest gap the hot set is too narrow: it is widened.
_PATIENCE = 3
_WIDEST = 8192
_PIECE = 2**20


@dataclass(frozen=True)
class HotSet:
    """Which patterns, and when to leave them: at a gap, or at an iteration."""

    index: np.ndarray
    leave_at: float
    last: int
    is_final: bool = False


class BlockSchedule:
    """Iterations on hot sets, a pass over the data after each.

    Parameters
    ----------
    problem : Problem
    kernel : Kernel
    memory : int
        Bytes for a hot set: its rows, and as many of its kernel columns as fit.
    """

    def __init__(self, problem: Problem, kernel: Kernel, memory: int) -> None:
        self._problem = problem
        self._kernel = kernel
        self._space = np.empty(0, np.float32)
        self._memory = memory

    def run(
        self, state: State, pause: Callable[[int], int] = lambda iteration: 2**62
    ) -> Iterator[State]:
        """Take steps until the gap is closed.

        Yields `state` after each pass and now and then, and a state of its own, whose gradient is
        not up to date, at the iterations that `pause` names in between; `state` itself is left
        alone until the pass. Where a hot set would hold all patterns, it is the exact schedule.
        """
        problem = self._problem
        closed = self._stop_test(state)
        while not closed:
            if 6 * state.hot_set >= len(problem.y):
                space = space_for_columns(self._memory, len(problem.y))
                yield from ExactSchedule(problem, space).run(state, pause)
                return
            hot = self._choose(state)
            rows = problem.backend.gather(hot.index)
            part = state.of(hot.index)
            due = pause(part.iteration)
            for _ in self._steps(part, hot, rows, pause):
                if part.iteration >= due:
                    yield state.with_part(hot.index, part)
                    due = pause(part.iteration)
                else:
                    yield state  # nothing new, but a moment to be interrupted at
            self._pass(state, hot, part, rows)
            closed = self._stop_test(state)
            self._widen_if_stalled(state)
            yield state

    def _steps(
        self, part: State, hot: HotSet, rows: np.ndarray, pause: Callable[[int], int]
    ) -> Iterator[None]:
        """Exact iterations on the hot set, until it has given what it has to give."""
        whole = self._problem
        backend = InMemoryBackend(rows, self._kernel)
        problem = replace(whole, backend=backend, y=whole.y[hot.index])
        schedule = ExactSchedule(problem, self._space_for(len(rows)))
        for _ in schedule.run(part, lambda i: min(pause(i), max(i + 1, hot.last)), hot.leave_at):
            yield
            if part.iteration >= hot.last or part.gap <= hot.leave_at:
                return

    def _pass(self, state: State, hot: HotSet, part: State, rows: np.ndarray) -> None:
        """Bring all of `state` up to date with what happened in the hot set.

        The product comes first: should it fail, the state is still that of the pass before.
        """
        change = part.alpha - state.alpha[hot.index]
        if hot.is_final and part.gap <= self._problem.tolerance:
            alpha = state.alpha.copy()
            alpha[hot.index] = part.alpha
            state.gradient = self._problem.gradient(alpha)
            state.drift = float(np.abs(state.gradient[hot.index] - part.gradient).max())
        else:
            moved = np.flatnonzero(change)
            state.gradient += self._problem.gradient_change(
                hot.index[moved], change[moved], rows[moved]
            )
            state.drift = None
        state.alpha[hot.index] = part.alpha
        state.role[hot.index] = part.role
        state.iteration = part.iteration
        state.passes += 1

    def _space_for(self, n: int) -> np.ndarray:
        """Space for columns, the same from pass to pass: fresh memory is slow at first touch."""
        rows_and_panels = 2 * 4 * n * self._problem.backend.d
        wanted = space_for_columns(self._memory - rows_and_panels, n)
        if len(wanted) > len(self._space):
            self._space = wanted
        return self._space[: len(wanted)]

    def _choose(self, state: State) -> HotSet:
        """Of either class some of the lowest idle, the lowest working, the highest in the support.

        Chosen over both classes together, one would fill the set, the next pass would swing back,
        and so on. All that work are taken while they fit.
        """
        g, role, y, p = state.gradient, state.role, self._problem.y, state.hot_set
        if state.passes == 0:
            return self._sample(state)
        idle, working = role == IDLE, role != IDLE
        all_work = np.count_nonzero(working) <= 4 * p
        is_final = bool(all_work and not (idle & (g < 0)).any())
        chosen = [np.flatnonzero(working)] if all_work else []
        # To the end none of them is likely to join: the nearest to zero will do.
        idle_count = max(1, p // 8) if is_final else p
        for of_class in (y < 0, y > 0):
            chosen.append(lowest(g, of_class & idle, idle_count))
            if not all_work:
                chosen.append(lowest(g, of_class & working, p))
                chosen.append(lowest(g, of_class & (role == SUPPORT), p, sign=-1))
        index = np.unique(np.concatenate(chosen))
        leave_at = -np.inf if is_final else _ENOUGH * state.gap
        return HotSet(index, leave_at, state.iteration + _LONGEST * len(index), is_final)

    def _sample(self, state: State) -> HotSet:
        """Patterns scattered over the data by a fixed rule, as many of either class."""
        y = self._problem.y
        count = max(1, min(len(y) // _SAMPLED, 6 * state.hot_set) // 2)
        place = np.arange(len(y), dtype=np.uint32) * np.uint32(2654435761)  # modulo 2^32
        chosen = [lowest(place, y < 0, count), lowest(place, y > 0, count)]
        index = np.unique(np.concatenate([*chosen, np.flatnonzero(state.role == SUPPORT)]))
        return HotSet(index, -np.inf, state.iteration + max(1, len(index) // _SAMPLED))

    def _widen_if_stalled(self, state: State) -> None:
        if state.gap < state.lowest_gap:
            state.lowest_gap, state.stalled = state.gap, 0
            return
        state.stalled += 1
        if state.stalled >= _PATIENCE and state.hot_set < _WIDEST:
            state.hot_set, state.stalled = min(2 * state.hot_set, _WIDEST), 0

    def _stop_test(self, state: State) -> bool:
        state.gap, closed = self._problem.stop_test(state, state.gradient)
        if not np.isfinite(state.gap):
            raise overflowed(state)
        return closed


def lowest(values: np.ndarray, eligible: np.ndarray, count: int, sign: int = 1) -> np.ndarray:
    """The indices of the `count` lowest eligible values, in order of index (sign -1: highest).

    Among equals the lower index goes first. Only the value at the border is taken from numpy's
    partition, whose order of equals differs between machines. A piece at a time: a copy of all
    values would be as large as all else a run holds.
    """
    kept = np.empty(0, np.int64)
    for start in range(0, len(values), _PIECE):
        here = start + np.flatnonzero(eligible[start : start + _PIECE])
        index = np.concatenate([kept, here])
        if len(index) > count:
            candidates = sign * values[index]
            border = np.partition(candidates, count - 1)[count - 1]
            below = index[candidates < border]
            index = np.sort(
                np.concatenate([below, index[candidates == border][: count - len(below)]])
            )
        kept = index
    return kept
