"""The `block` schedule: thousands of iterations for one pass over the data.

Choose a hot set of patterns near the extremes of the gradient; let the exact schedule loose on it
alone; then one product with the patterns that moved brings the whole gradient up to date. The
theorem of the paper still holds: the working set only grows, a joining pattern has a
derivative of 0 or less, and the stop test is made on the whole, fresh gradient.

The first hot set is a sample of the data: a model of it, however rough, saves dozens of passes. In
the last one nobody waits to join and all that work are in: it is solved to the end, and the pass
after it recomputes the gradient from alpha alone, as the end of a run asks for anyway.
"""

from collections.abc import Callable, Iterator
from copy import copy

import numpy as np

from bigsvm.backends import Backend
from bigsvm.backends.gathered import Gathered
from bigsvm.backends.in_memory import InMemoryBackend
from bigsvm.backends.part import PartOfBackend
from bigsvm.kernels import Kernel
from bigsvm.solvers.column_cache import space_for_columns
from bigsvm.solvers.exact import ExactSchedule, overflowed
from bigsvm.solvers.hot_set import Excursion, HotSet, Wanted
from bigsvm.solvers.problem import Problem
from bigsvm.solvers.state import IDLE, SUPPORT, State, pieces

# A hot set has at most so many patterns for each that its width names.
HOT_ROWS = 6
# Leave a hot set when its gap has come down to this share of the whole one: what comes after would
# be undone by the next one.
_ENOUGH = 0.7
# The sample is a fourth of the data, if that fits, and is left after a sixth as many iterations:
# what is piled up on few patterns for longer takes many steps to spread out again.
_SAMPLED = 4
_LEAVE_SAMPLE = 6
# A third of the idle patterns are scouts, drawn from those that are classified well. Where so many
# of them join the model has come too far from what is known of the rest: most would join that have
# no need to. In the last hot set one is enough. But where classes overlap much some join at all
# times: a pass is worth its price only after some iterations.
_SCOUTS = 4
_SCOUTS_TO_LEAVE = 1 / 48
_WORTH_A_PASS = 1 / 8
# No hot set is worked on for longer than so many iterations a pattern: what is done there is not
# safe before the pass.
_LONGEST = 2
# After so many passes without a new lowest gap the hot set is too narrow: it is widened.
_PATIENCE = 3
_WIDEST = 8192


class _Space:
    """Memory kept from hot set to hot set: fresh memory is slow at first touch."""

    def __init__(self) -> None:
        self.floats = np.empty(0, np.float32)


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
        self._space = _Space()
        self._memory = memory

    def sibling(self, problem: Problem) -> "BlockSchedule":
        """The same for other labels of the same patterns, in the same memory."""
        other = copy(self)
        other._problem = problem
        return other

    def run(
        self, state: State, pause: Callable[[int], int] = lambda iteration: 2**62
    ) -> Iterator[State]:
        """Take steps until the gap is closed.

        Yields `state` after each pass and now and then, and a state of its own, whose gradient is
        not up to date, at the iterations that `pause` names in between; `state` itself is left
        alone until the pass. Where a hot set would hold all patterns, it is the exact schedule.
        """
        problem = self._problem
        closed = self.stop_test(state)
        while not closed:
            if self.holds_all(state):
                yield from ExactSchedule(problem, self.space_for_all()).run(state, pause)
                return
            away = self.set_out(state)
            hot = self.serve(away)
            due = pause(state.iteration)
            for _ in self.steps(away, hot, pause):
                if away.part.iteration >= due:
                    yield away.ahead
                    due = pause(away.part.iteration)
                else:
                    yield state  # nothing new, but a moment to be interrupted at
            closed = self.settle(away, self._product(away, hot))
            del hot  # or it would be in memory beside the next
            yield state

    def holds_all(self, state: State) -> bool:
        """Whether a hot set would hold all patterns."""
        return HOT_ROWS * state.hot_set >= len(self._problem.y)

    def set_out(self, state: State) -> Excursion:
        """Choose a hot set."""
        hot = self._choose(state)
        return Excursion(state, hot, state.of(hot.index))

    def serve(self, away: Excursion) -> Backend:
        """Its patterns: in memory; but where hot sets have been widened beyond it, from the data.

        That they are widened must not depend on the memory: it is part of the bits.
        """
        backend, index = self._problem.backend, away.hot.index
        if self._rows_and_panels(away.state) + 2 * 4 * len(index) > self._memory:
            return PartOfBackend(backend, index, self._kernel)
        return InMemoryBackend(backend.gather(index), self._kernel, backend.kernel_values)

    def steps(
        self, away: Excursion, served: Backend, pause: Callable[[int], int]
    ) -> Iterator[None]:
        """Exact iterations on the hot set, until it has given what it has to give.

        `served` serves its patterns.
        """
        hot, part = away.hot, away.part
        problem = self._problem.part(hot.index, served)
        taken = self._rows_and_panels(away.state) if isinstance(served, InMemoryBackend) else 0
        schedule = ExactSchedule(problem, self._space_for(len(hot.index), taken))
        # It must look at the very iteration from which it may leave: else the pauses would decide.
        pause_or_leave = lambda i: min(  # noqa: E731
            pause(i), hot.earliest if i < hot.earliest else max(i + 1, hot.last)
        )
        for _ in schedule.run(part, pause_or_leave, hot.leave_at, hot.scouts):
            yield
            if hot.is_done(part):
                return

    def wanted(self, away: Excursion) -> Wanted:
        """What `settle` needs of a pass."""
        if self._is_the_end(away):
            alpha = away.ahead.alpha
            support = np.flatnonzero(alpha)
            return Wanted(support, alpha[support], afresh=True)
        change = away.part.alpha - away.state.alpha[away.hot.index]
        moved = np.flatnonzero(change)
        return Wanted(away.hot.index[moved], change[moved], afresh=False)

    def settle(self, away: Excursion, gradient: np.ndarray) -> bool:
        """Bring the state up to date with what happened in the hot set; whether it may end there.

        `gradient` is what was `wanted`. It comes first: had it failed, the state would still be
        that of the pass before.
        """
        state, hot, part = away.state, away.hot, away.part
        if self._is_the_end(away):
            state.gradient = gradient
            state.drift = float(np.abs(gradient[hot.index] - part.gradient).max())
        else:
            state.gradient += gradient
            state.drift = None
        state.alpha[hot.index] = part.alpha
        state.role[hot.index] = part.role
        state.iteration = part.iteration
        state.passes += 1
        closed = self.stop_test(state)
        if not hot.went_too_far(part):  # else it was cut short, and the working set has grown
            self._widen_if_stalled(state)
        return closed

    def _is_the_end(self, away: Excursion) -> bool:
        # The final hot set holds the whole support, so its a'Qa is that of the problem.
        threshold = self._problem.stop_rule.threshold(away.part.level)
        return away.hot.is_final and away.part.gap <= threshold

    def _product(self, away: Excursion, served: Backend) -> np.ndarray:
        """A pass over the data."""
        wanted = self.wanted(away)
        if wanted.afresh:
            return self._problem.gradient(away.ahead.alpha)
        here = np.searchsorted(away.hot.index, wanted.index)
        rows = Gathered(served, here, self._problem.backend.rows_at_once)
        return self._problem.gradient_change(wanted.index, wanted.alpha, rows)

    def _rows_and_panels(self, state: State) -> int:
        """The bytes of a hot set of that width, at most."""
        return 2 * 4 * HOT_ROWS * state.hot_set * self._problem.backend.d

    def space_for_all(self) -> np.ndarray:
        """Space for columns of all patterns."""
        return self._space_for(len(self._problem.y), 0)

    def _space_for(self, n: int, taken: int) -> np.ndarray:
        """Space for columns of n patterns, the same from pass to pass; `taken` is not for it."""
        wanted = space_for_columns(self._memory - taken, n)
        kept = self._space.floats.nbytes
        # What was written to stays in memory: beside wider hot sets the old space is too large.
        if kept < wanted.nbytes or kept > max(self._memory - taken, wanted.nbytes):
            self._space.floats = wanted
        return self._space.floats[: len(wanted)]

    def _choose(self, state: State) -> HotSet:
        """Of either class idle patterns, the lowest working, the highest in the support.

        Chosen over both classes together, one would fill the set, the next pass would swing back,
        and so on. All that work are taken while they fit. Of the idle ones that wait to join some
        are drawn, for the lowest are outliers, and a model of those is none of the rest; then come
        the nearest to zero, and the scouts.
        """
        g, role, y, p = state.gradient, state.role, self._problem.y, state.hot_set
        if state.passes == 0:
            return self._sample(state)
        idle, working = role == IDLE, role > IDLE
        all_work = np.count_nonzero(working) <= 4 * p
        is_final = bool(all_work and not (idle & (g <= 0)).any())
        chosen = [np.flatnonzero(working)] if all_work else []
        scouts = []
        for of_class in (y < 0, y > 0):
            here = of_class & idle
            chosen.append(lowest(_Drawn(len(y)), here & (g <= 0), p // 2))
            here[chosen[-1]] = False
            chosen.append(lowest(g, here, p // 2 - len(chosen[-1])))
            here[chosen[-1]] = False
            scouts.append(lowest(_Drawn(len(y)), here & (g > 0), p // _SCOUTS))
            if not all_work:
                chosen.append(lowest(g, of_class & working, p))
                chosen.append(lowest(g, of_class & (role == SUPPORT), p, sign=-1))
        index = np.unique(np.concatenate([*chosen, *scouts]))
        is_scout = np.isin(index, np.concatenate(scouts))
        few = max(1, round(_SCOUTS_TO_LEAVE * np.count_nonzero(is_scout)))
        return HotSet(
            index,
            leave_at=self._leave_at(state, is_final),
            last=state.iteration + _LONGEST * len(index),
            scouts=is_scout,
            patience=1 if is_final else few,
            earliest=state.iteration + int(_WORTH_A_PASS * p),
            is_final=is_final,
        )

    def _leave_at(self, state: State, is_final: bool) -> float:
        gap = state.gap
        if not is_final:
            return _ENOUGH * gap
        # A long way to go is gone in stages: who joins late makes the end of it worthless.
        return gap / 10 if gap > 100 * self._problem.stop_rule.threshold(state.level) else -np.inf

    def _sample(self, state: State) -> HotSet:
        """Patterns drawn by a fixed rule, as many of either class."""
        y, takes_part = self._problem.y, self._problem.signs != 0
        count = max(1, min(len(y) // _SAMPLED, HOT_ROWS * state.hot_set) // 2)
        drawn = _Drawn(len(y))
        chosen = [lowest(drawn, of_class & takes_part, count) for of_class in (y < 0, y > 0)]
        index = np.unique(np.concatenate([*chosen, np.flatnonzero(state.role == SUPPORT)]))
        last = state.iteration + max(1, len(index) // _LEAVE_SAMPLE)
        return HotSet(index, -np.inf, last, scouts=np.zeros(len(index), bool))

    def _widen_if_stalled(self, state: State) -> None:
        if state.gap < state.lowest_gap:
            state.lowest_gap, state.stalled = state.gap, 0
            return
        state.stalled += 1
        if state.stalled >= _PATIENCE and state.hot_set < _WIDEST:
            state.hot_set, state.stalled = min(2 * state.hot_set, _WIDEST), 0

    def stop_test(self, state: State) -> bool:
        """Note the gap; whether the run may end there."""
        state.gap, closed = self._problem.stop_test(state, state.gradient)
        if not np.isfinite(state.gap):
            raise overflowed(state)
        return closed


class _Drawn:
    """A number for each of n patterns, without order, always the same."""

    def __init__(self, n: int) -> None:
        self._n = n

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, index: np.ndarray) -> np.ndarray:
        return index.astype(np.uint32) * np.uint32(2654435761)  # modulo 2^32


def lowest(
    values: np.ndarray | _Drawn, eligible: np.ndarray, count: int, sign: int = 1
) -> np.ndarray:
    """The indices of the `count` lowest eligible values, in order of index (sign -1: highest).

    Among equals the lower index goes first. Only the value at the border is taken from numpy's
    partition, whose order of equals differs between machines.
    """
    kept = np.empty(0, np.int64)
    if count <= 0:
        return kept
    for piece in pieces(len(values)):
        here = piece.start + np.flatnonzero(eligible[piece])
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
