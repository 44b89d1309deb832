"""The schedules for more than two classes: each class has its turn, and they share kernel values.

Whose turn it is follows from the states alone, so that a run that goes on later takes the same
turns.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from bigsvm.kernels import Kernel
from bigsvm.solvers.block import BlockSchedule
from bigsvm.solvers.class_states import ClassStates
from bigsvm.solvers.exact import ExactSchedule
from bigsvm.solvers.hot_set import Excursion
from bigsvm.solvers.one_vs_rest import OneVsRest
from bigsvm.solvers.problem import ROWS

Pause = Callable[[int], int]
# Iterations in a turn of the exact schedule: long enough to pay for finding the first nodes, short
# enough for snapshots in which all classes are about as far.
_TURN = 128
_NO_LIMIT = 2**62


def _never(iteration: int) -> int:
    return _NO_LIMIT


class ExactInTurns:
    """The exact schedule, class by class in short turns, on one cache of kernel columns.

    Parameters
    ----------
    problem : OneVsRest
    space : (size,) float32
        Where kernel columns are kept; see `space_for_columns`.
    limit : int
        Of the iterations of each class.
    """

    def __init__(self, problem: OneVsRest, space: np.ndarray, limit: int = _NO_LIMIT) -> None:
        first = ExactSchedule(problem.classes[0], space)
        self._schedules = [first.sibling(of_class) for of_class in problem.classes]
        self._limit = limit

    def run(
        self, states: ClassStates, pause: Pause = _never, which: set[int] | None = None
    ) -> Iterator[ClassStates]:
        """Take steps until the gap of every class (of `which`) is closed or the limit reached.

        Yields as `ExactSchedule` does, and once at the end.
        """
        going = set(range(len(states.classes))) if which is None else set(which)
        states.closed.difference_update(going)
        going = {k for k in going if states.classes[k].iteration < self._limit}
        while going:
            k = min(going, key=lambda k: (states.classes[k].iteration // _TURN, k))
            for _ in self._turn(k, states, pause):
                yield states
            if k in states.closed or states.classes[k].iteration >= self._limit:
                going.remove(k)
        yield states

    def _turn(self, k: int, states: ClassStates, pause: Pause) -> Iterator[None]:
        state = states.classes[k]
        end = min((state.iteration // _TURN + 1) * _TURN, self._limit)
        others = states.iteration - state.iteration
        for _ in self._schedules[k].run(state, lambda i: min(pause(others + i) - others, end)):
            yield
            if state.iteration >= end:
                return
        states.closed.add(k)


class BlockInTurns:
    """The block schedule: every class works on a hot set of its own, then one pass serves all.

    Parameters
    ----------
    problem : OneVsRest
    kernel : Kernel
    memory : int
        Bytes for a hot set; the classes use them one after the other.
    limit : int
        Of the iterations of each class.
    """

    def __init__(
        self, problem: OneVsRest, kernel: Kernel, memory: int, limit: int = _NO_LIMIT
    ) -> None:
        first = BlockSchedule(problem.classes[0], kernel, memory)
        self._schedules = [first.sibling(of_class) for of_class in problem.classes]
        self._problem = problem
        self._limit = limit

    def run(self, states: ClassStates, pause: Pause = _never) -> Iterator[ClassStates]:
        """Take steps until the gap of every class is closed or the limit reached.

        Yields now and then, at the iterations (of all classes together) that `pause` names, and
        after each pass; where classes are away, `states` itself is left alone until the pass.
        """
        states.closed.clear()
        for k, state in enumerate(states.classes):
            if self._schedules[k].stop_test(state):
                states.closed.add(k)
        away: dict[int, Excursion] = {}  # waiting for a pass, or for ever at the limit
        waiting: dict[int, np.ndarray] = {}  # the patterns that moved
        while True:
            going = self._going(states, away)
            if waiting and not going:
                yield self._pass(states, away, waiting)
                continue
            if not going:
                break
            k = min(going, key=lambda k: (states.classes[k].passes, k))
            if self._schedules[k].holds_all(states.classes[k]):
                if waiting:
                    yield self._pass(states, away, waiting)
                wide = {k for k in going if self._schedules[k].holds_all(states.classes[k])}
                space = self._schedules[k].space_for_all()
                exact = ExactInTurns(self._problem, space, self._limit)
                yield from exact.run(replace(states, away=dict(away)), pause, wide)
                continue
            out = self._schedules[k].set_out(states.classes[k])
            yield from self._work(k, out, replace(states, away={**away, k: out}), pause)
            if out.part.iteration >= self._limit:
                away[k] = out
                continue
            moved = self._schedules[k].wanted(out).index
            rows = np.concatenate([moved, *waiting.values()])
            if waiting and len(np.unique(rows)) > ROWS:
                yield self._pass(states, away, waiting)
            away[k], waiting[k] = out, moved
        yield replace(states, away=dict(away))

    def _going(self, states: ClassStates, away: dict[int, Excursion]) -> set[int]:
        """The classes that can take steps."""
        return {
            k
            for k, state in enumerate(states.classes)
            if k not in away and k not in states.closed and state.iteration < self._limit
        }

    def _work(
        self, k: int, out: Excursion, now: ClassStates, pause: Pause
    ) -> Iterator[ClassStates]:
        """Steps on the hot set of class k."""
        others = now.iteration - out.part.iteration
        served = self._schedules[k].serve(out)
        until = lambda i: min(pause(others + i) - others, self._limit)  # noqa: E731
        for _ in self._schedules[k].steps(out, served, until):
            yield now
            if out.part.iteration >= self._limit:
                return

    def _pass(
        self, states: ClassStates, away: dict[int, Excursion], waiting: dict[int, np.ndarray]
    ) -> ClassStates:
        """Bring the classes that wait up to date; `waiting` is empty then."""
        wanted = {k: self._schedules[k].wanted(away[k]) for k in waiting}
        gradients = self._problem.gradients(wanted)
        for k in wanted:
            gradient = gradients[k].copy() if wanted[k].afresh else gradients[k]
            if self._schedules[k].settle(away.pop(k), gradient):
                states.closed.add(k)
        waiting.clear()
        states.passes += 1
        return replace(states, away=dict(away))
