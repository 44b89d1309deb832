"""The schedules for more than two classes: each class has its turn, and they share kernel values.

Whose turn it is follows from the states alone, so that a resumed run takes the same
turns.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from bigsvm.backends import PRODUCT_ROWS
from bigsvm.kernels import Kernel
from bigsvm.solvers.block import BlockSchedule
from bigsvm.solvers.block_solve import BlockSolve, GradientRequest
from bigsvm.solvers.class_states import ClassStates
from bigsvm.solvers.exact import ExactSchedule
from bigsvm.solvers.one_vs_rest import OneVsRest

Pause = Callable[[int], int]
# Iterations in a turn of the exact schedule: long enough to pay for finding the first nodes, short
# enough for snapshots in which all classes are about as far.
_TURN = 128
_NO_LIMIT = 2**62


def _never(iteration: int) -> int:
    return _NO_LIMIT


class MulticlassExact:
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


class MulticlassBlock:
    """The block schedule: every class solves a subproblem of its own, then one pass serves all.

    Parameters
    ----------
    problem : OneVsRest
    kernel : Kernel
    memory : int
        Bytes for subproblems; the classes use them one after the other.
    hot_set : int
        See `BlockSchedule`.
    limit : int
        Of the iterations of each class.
    """

    def __init__(
        self,
        problem: OneVsRest,
        kernel: Kernel,
        memory: int,
        hot_set: int,
        limit: int = _NO_LIMIT,
    ) -> None:
        first = BlockSchedule(problem.classes[0], kernel, memory, hot_set)
        self._schedules = [first.sibling(of_class) for of_class in problem.classes]
        self._problem = problem
        self._limit = limit

    def run(self, states: ClassStates, pause: Pause = _never) -> Iterator[ClassStates]:
        """Take steps until every class has converged or reached the limit.

        Yields now and then, at the iterations (of all classes together) that `pause` names, and
        after each pass; where classes are away, `states` itself is left alone until the pass.
        """
        states.closed.clear()
        for k, state in enumerate(states.classes):
            self._schedules[k].begin(state)
            if self._schedules[k].stop_test(state):
                states.closed.add(k)
        away: dict[int, BlockSolve] = {}  # waiting for a pass, or for ever at the limit
        waiting: dict[int, GradientRequest] = {}
        while True:
            going = self._going(states, away)
            if waiting and not going:
                yield self._pass(states, away, waiting)
                continue
            if not going:
                break
            k = min(going, key=lambda k: (states.classes[k].passes, states.classes[k].iteration, k))
            block = self._schedules[k].select_block(states.classes[k])
            yield from self._work(k, block, replace(states, away={**away, k: block}), pause)
            if block.is_whole:
                if self._schedules[k].commit_whole(block):
                    states.closed.add(k)
                yield replace(states, away=dict(away))
                continue
            away[k] = block
            if block.iteration >= self._limit:
                continue
            request = self._schedules[k].request(block)
            rows = np.concatenate([request.index, *(other.index for other in waiting.values())])
            if waiting and len(np.unique(rows)) > PRODUCT_ROWS:
                yield self._pass(states, away, waiting)
            waiting[k] = request
        yield replace(states, away=dict(away))

    def _going(self, states: ClassStates, away: dict[int, BlockSolve]) -> set[int]:
        """The classes that can take steps."""
        return {
            k
            for k, state in enumerate(states.classes)
            if k not in away and k not in states.closed and state.iteration < self._limit
        }

    def _work(
        self, k: int, block: BlockSolve, now: ClassStates, pause: Pause
    ) -> Iterator[ClassStates]:
        """Steps on the subproblem of class k."""
        others = now.iteration - block.iteration
        until = lambda i: min(pause(others + i) - others, self._limit)  # noqa: E731
        for _ in self._schedules[k].solve(block, until):
            yield now
            if block.iteration >= self._limit:
                return

    def _pass(
        self,
        states: ClassStates,
        away: dict[int, BlockSolve],
        waiting: dict[int, GradientRequest],
    ) -> ClassStates:
        """Bring the classes that wait up to date, those on the same patterns by the same pass."""
        passes: dict[bytes, dict[int, GradientRequest]] = {}
        for k, request in sorted(waiting.items(), key=lambda item: (item[1].sample, item[0])):
            passes.setdefault(request.patterns, {})[k] = request
        for group in passes.values():
            one = next(iter(group))
            in_part = group[one].rows is not None
            served = self._schedules[one].sample_backend(group[one]) if in_part else None
            gradients = self._problem.gradients(group, served)
            for k, request in group.items():
                gradient = gradients[k].copy() if request.from_scratch else gradients[k]
                if self._schedules[k].commit_block(away.pop(k), request, gradient):
                    states.closed.add(k)
            states.passes += 1
        waiting.clear()
        return replace(states, away=dict(away))
