"""The schedules: which steps are taken when, on which kernel values.

Of more than two classes each has its turn. Whose turn it is follows from the states alone, so that
a resumed run takes the same turns.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np

from bigsvm.backends import PRODUCT_ROWS
from bigsvm.kernels import Kernel
from bigsvm.solvers.block import BlockSolver
from bigsvm.solvers.block_solve import BlockSolve, GradientRequest
from bigsvm.solvers.column_cache import ColumnCache
from bigsvm.solvers.exact import exact_steps
from bigsvm.solvers.joint import JointProblem, JointState

Pause = Callable[[int], int]
NEVER = 2**62
# Iterations in a turn of the exact schedule, where there are several classes: long enough to pay
# for finding the first nodes, short enough for snapshots in which all classes are about as far.
_TURN = 128


def never(iteration: int) -> int:
    """The pause of a run that has none."""
    return NEVER


@dataclass(frozen=True)
class Event:
    """What a schedule has just done.

    Attributes
    ----------
    what : {"begin", "steps", "pause", "commit", "end"}
        Nothing yet; it took some steps; it reached the iteration that was asked for; it solved a
        subproblem and brought the gradient up to date; every class has converged or reached the
        limit.
    state : JointState
        The iterate now. Its `classes` are those that the schedule was given.
    """

    what: Literal["begin", "steps", "pause", "commit", "end"]
    state: JointState


class Schedule(Protocol):
    """Carries out an algorithm on a problem."""

    def run(self, state: JointState, pause: Pause = never) -> Iterator[Event]:
        """Take steps until every class has converged or reached the limit, the last event.

        There is an event at the iteration (of all classes together) that ``pause(iteration)`` names
        as the next, and wherever else it costs nothing. `state` is what a checkpoint saves; the
        state of an event may be ahead of it.
        """


class ExactSchedule:
    """The paper's loop, class by class in short turns, on one cache of kernel columns.

    Parameters
    ----------
    problem : JointProblem
    space : (size,) float32
        Where kernel columns are kept; see `space_for_columns`.
    limit : int
        Of the iterations of each class.
    """

    def __init__(self, problem: JointProblem, space: np.ndarray, limit: int = NEVER) -> None:
        self._problem = problem
        self._cache = ColumnCache(problem.backend, space)
        self._limit = limit
        self._turn = _TURN if problem.n_outputs > 1 else NEVER

    def run(self, state: JointState, pause: Pause = never) -> Iterator[Event]:
        """See `Schedule`."""
        yield Event("begin", state)
        state.closed.clear()
        while going := self._going(state):
            k = min(going, key=lambda k: (state.classes[k].iteration // self._turn, k))
            yield from self._take_turn(k, state, pause)
        yield Event("end", state)

    def _going(self, state: JointState) -> list[int]:
        """The classes that can take steps."""
        return [
            k
            for k, of_class in enumerate(state.classes)
            if k not in state.closed and of_class.iteration < self._limit
        ]

    def _take_turn(self, k: int, state: JointState, pause: Pause) -> Iterator[Event]:
        of_class = state.classes[k]
        end = min((of_class.iteration // self._turn + 1) * self._turn, self._limit)
        others = state.iteration - of_class.iteration
        due = pause(state.iteration)
        until = lambda i: min(pause(others + i) - others, end)  # noqa: E731
        for _ in exact_steps(self._problem.classes[k], self._cache, of_class, until):
            paused = state.iteration >= due
            yield Event("pause" if paused else "steps", state)
            if of_class.iteration >= end:
                return
            due = pause(state.iteration) if paused else due
        state.closed.add(k)


class BlockSchedule:
    """Every class solves a subproblem of its own in memory, then one pass over the data serves all.

    Parameters
    ----------
    problem : JointProblem
    kernel : Kernel
    memory : int
        Bytes for subproblems; the classes use them one after the other.
    hot_set : int
        See `BlockSolver`.
    limit : int
        Of the iterations of each class.
    """

    def __init__(
        self, problem: JointProblem, kernel: Kernel, memory: int, hot_set: int, limit: int = NEVER
    ) -> None:
        first = BlockSolver(problem.classes[0], kernel, memory, hot_set)
        self._solvers = [first.sibling(of_class) for of_class in problem.classes]
        self._problem = problem
        self._limit = limit

    def run(self, state: JointState, pause: Pause = never) -> Iterator[Event]:
        """See `Schedule`; `state` is changed by passes, and by subproblems of all patterns."""
        yield Event("begin", state)
        state.closed.clear()
        for k, of_class in enumerate(state.classes):
            self._solvers[k].begin(of_class)
            if self._solvers[k].stop_test(of_class):
                state.closed.add(k)
        ahead: dict[int, BlockSolve] = {}  # waiting for a pass, or stopped at the limit
        waiting: dict[int, GradientRequest] = {}
        while True:
            going = self._going(state, ahead)
            if waiting and not going:
                yield self._pass(state, ahead, waiting)
                continue
            if not going:
                break
            k = min(going, key=lambda k: (state.classes[k].passes, state.classes[k].iteration, k))
            block = self._solvers[k].select_block(state.classes[k])
            yield from self._work(k, block, replace(state, ahead={**ahead, k: block}), pause)
            is_limited = block.iteration >= self._limit
            if block.is_whole and not is_limited:
                if self._solvers[k].commit_whole(block):
                    state.closed.add(k)
                yield Event("commit", replace(state, ahead=dict(ahead)))
                continue
            ahead[k] = block
            if self._going(state, ahead):  # before another class steps: a pause may be due here
                yield Event("steps", replace(state, ahead=dict(ahead)))
            if is_limited:  # not committed: a run with a larger limit takes the same steps again
                continue
            request = self._solvers[k].request(block)
            rows = np.concatenate([request.index, *(other.index for other in waiting.values())])
            if waiting and len(np.unique(rows)) > PRODUCT_ROWS:
                yield self._pass(state, ahead, waiting)
            waiting[k] = request
        yield Event("end", replace(state, ahead=ahead))

    def _going(self, state: JointState, ahead: dict[int, BlockSolve]) -> list[int]:
        """The classes that can take steps."""
        return [
            k
            for k, of_class in enumerate(state.classes)
            if k not in ahead and k not in state.closed and of_class.iteration < self._limit
        ]

    def _work(self, k: int, block: BlockSolve, now: JointState, pause: Pause) -> Iterator[Event]:
        """Steps on the subproblem of class k."""
        others = now.iteration - block.iteration
        due = pause(now.iteration)
        until = lambda i: min(pause(others + i) - others, self._limit)  # noqa: E731
        for _ in self._solvers[k].solve(block, until):
            paused = now.iteration >= due
            yield Event("pause" if paused else "steps", now)
            if block.iteration >= self._limit:
                return
            due = pause(now.iteration) if paused else due

    def _pass(
        self,
        state: JointState,
        ahead: dict[int, BlockSolve],
        waiting: dict[int, GradientRequest],
    ) -> Event:
        """Bring the classes that wait up to date, those on the same patterns by the same pass."""
        passes: dict[bytes, dict[int, GradientRequest]] = {}
        for k, request in sorted(waiting.items(), key=lambda item: (item[1].sample, item[0])):
            passes.setdefault(request.patterns, {})[k] = request
        for group in passes.values():
            one = next(iter(group))
            in_part = group[one].rows is not None
            served = self._solvers[one].sample_backend(group[one]) if in_part else None
            gradients = self._problem.gradients(group, served)
            for k, request in group.items():
                if self._solvers[k].commit_block(ahead.pop(k), request, gradients[k]):
                    state.closed.add(k)
            state.passes += 1
        waiting.clear()
        return Event("commit", replace(state, ahead=dict(ahead)))
