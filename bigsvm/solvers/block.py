"""The `block` schedule: subproblems solved in memory; passes over the data find what joins.

Three nested levels, each with products of its own, so that no level waits for a larger one:

1. *All data.* One kernel product with the patterns that moved brings the whole gradient up to date.
   That is a pass, and all that a pass is for is to find the idle patterns that join, and to test
   for convergence.
2. *The subproblem*: the working set, and the idle patterns that wait to join it. It is solved
   between two passes, whatever its size: to half of the margin while many wait, to the tolerance
   once few do.
3. *The hot set*: at most `hot_set` patterns of the subproblem, whose kernel columns are cached.
   `conjugate.py` takes its steps there. A subproblem that fits is one hot set; a larger one is
   divided into cells (`cells.py`), which are solved in turn, for another division each time.

A run begins on a sample that is solved outright, and continues with samples four times as large,
until all patterns are in play: a pass over a small sample costs little, and most support vectors
of the whole problem are found there.

Towards the end the derivatives fall by less and less from pass to pass, and idle patterns that are
farther than that from joining are set aside, as by LIBSVM's shrinking: the problem of the others is
solved, then a pass over all patterns, from scratch, finds those that have to join after all, or
verifies that it is the end.

The theorem of the paper still holds: the working set only grows, a pattern joins at a derivative of
0 or less, and the stop test is made on the whole, up-to-date gradient.
"""

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from bigsvm.backends import Backend
from bigsvm.backends.in_memory import InMemoryBackend, SubsetBackend
from bigsvm.backends.products import GatheredRows
from bigsvm.kernels import Kernel
from bigsvm.solvers.block_solve import BlockSolve, GradientRequest
from bigsvm.solvers.candidates import draw_candidates
from bigsvm.solvers.cells import cells
from bigsvm.solvers.exact import overflowed
from bigsvm.solvers.hot_columns import HotColumns
from bigsvm.solvers.hot_steps import hot_steps
from bigsvm.solvers.order import HashOrder, k_smallest
from bigsvm.solvers.problem import Problem
from bigsvm.solvers.set_aside import FEW, fall_to_come, set_aside, usual_fall
from bigsvm.solvers.state import EXCLUDED, IDLE, SUPPORT, UNSEEN, WORKING, State

# A problem of at most this many patterns is solved whole, without passes over the data.
_SMALL = 16_384
# The rows of a hot set are in memory: this many values at most, or those of a small problem.
_HOT_VALUES = 2**23
# Samples grow by this factor.
_GROWTH = 4
# The first sample, and the fewest patterns that may join at a pass: this share of a small problem.
_FIRST = 4
# While many wait to join, subproblems are solved to this share of the margin: who joins next
# changes the rest of the solution anyway.
_ROUGH = 0.5
# A sample is left when fewer than this share of its patterns wait to join. Of all data the
# subproblem is solved to the tolerance when `FEW` do.
_FEW_OF_SAMPLE = 1 / 50
# A cell is left at this share of its violation: the rest would be undone by the next one.
_ENOUGH = 0.1
# A subproblem is left after this many steps a pattern, solved or not, so that no run loses more.
_LONGEST = 8
# The pass computes the same gradient with other roundings. And cells that are solved, each by
# itself, have to be solved together.
_ROUNDING = 0.999


def largest_hot_set(hot_set: int, d: int) -> int:
    """The bound `hot_set`, or what is left of it for patterns of many features."""
    return min(hot_set, max(_SMALL, _HOT_VALUES // d))


class BlockSolver:
    """The block schedule of one class: its subproblems, and what it requests of each pass.

    Parameters
    ----------
    problem : Problem
    kernel : Kernel
    memory : int
        Bytes for rows and kernel columns of subproblems and samples.
    hot_set : int
        The most patterns in a hot set; see `largest_hot_set`. A cell has at most half as many, or
        there would be only two of them. Part of the bits of a result; the memory is not.
    """

    def __init__(self, problem: Problem, kernel: Kernel, memory: int, hot_set: int) -> None:
        self._problem = problem
        self._kernel = kernel
        hot_set = self._hot_set = largest_hot_set(hot_set, problem.backend.d)
        self._small = min(_SMALL, hot_set)
        self._cell = max(1, hot_set // 2)
        n, row = len(problem.y), 2 * 4 * problem.backend.d  # as gathered, and in a panel
        self._rows_memory = memory // 4
        reserved = min(row * 2 * hot_set, self._rows_memory) + min(row * n, self._rows_memory)
        self._columns = HotColumns(kernel, memory - reserved, min(hot_set, n))
        self._samples = _SampleBackend()

    def sibling(self, problem: Problem) -> "BlockSolver":
        """The same for other labels of the same patterns, in the same memory."""
        other = copy(self)
        other._problem = problem
        return other

    def begin(self, state: State) -> None:
        """Draw the first sample, where a run starts from one pattern and all are too many."""
        in_play = int(np.count_nonzero(state.role >= IDLE))
        if state.passes or state.n_support > 1 or in_play <= self._small:
            return
        sample = in_play
        while sample > max(1, self._small // _FIRST):
            sample = max(1, sample // _GROWTH)
        drawn = k_smallest(HashOrder(len(state.role)), state.role >= IDLE, sample)
        unseen = state.role >= IDLE
        unseen[drawn] = False
        unseen[state.role == SUPPORT] = False
        state.role[unseen] = UNSEEN
        state.sample = sample

    def select_block(self, state: State) -> BlockSolve:
        """The working set, with the idle patterns that wait to join it.

        Within the subproblem they join one by one, the worst violator first, and most no longer
        have to once others have joined. At most as many are included as the working set has: by
        then the model is another one.
        """
        candidates = state.role == self._idle
        members = np.flatnonzero((state.role > IDLE) & ~candidates)
        n_playing = len(members) + int(np.count_nonzero(candidates))
        is_whole = n_playing <= self._small
        is_drawn = 0 < state.sample < len(state.role)
        is_rough = is_drawn or not is_whole
        bar = self._bar(state, is_rough)
        n_waiting = int(np.count_nonzero(candidates & (state.gradient <= bar)))
        if not is_drawn and n_waiting <= FEW * np.count_nonzero(state.role != EXCLUDED):
            is_rough = False
            bar = self._bar(state, is_rough)
        joining = np.flatnonzero(candidates)
        if not is_whole:
            most = max(len(members), self._small // _FIRST)
            joining = draw_candidates(state.gradient, candidates, bar, most, state.waited)
        index = np.union1d(members, joining)
        if len(index) <= self._hot_set:
            index = self._columns.arrange(index)
        sample = state.sample
        if is_drawn and (is_whole or n_waiting <= _FEW_OF_SAMPLE * n_playing):
            sample = self._larger(sample, int(np.count_nonzero(state.role != EXCLUDED)))
        elif sample and (is_whole or self._problem.stop_test(state, state.gradient)[1]):
            sample = 0  # solved, or about to be, but for the patterns set aside
        is_whole = is_whole and not state.sample
        longest = len(index) * (1 if is_whole else _LONGEST)
        longest *= max(1, len(index) // self._cell)  # a step in a cell costs that much less
        last, tolerances = state.iteration + longest, self._tolerances(is_rough)
        return BlockSolve(
            state, index, state.of(index), tolerances, sample, state.quad_form, last, is_whole,
            n_waiting, len(joining),
        )  # fmt: skip

    @staticmethod
    def _larger(sample: int, all_patterns: int) -> int:
        """The sample after one of this size; 0 for all patterns."""
        larger = all_patterns
        while larger // _GROWTH > sample:
            larger //= _GROWTH
        return 0 if larger == all_patterns else larger

    @property
    def _idle(self) -> int:
        """The role of patterns that a subproblem may do without; in `fw` all patterns work."""
        return WORKING if self._problem.algorithm == "fw" else IDLE

    def _bar(self, state: State, is_rough: bool) -> float:
        """The derivative up to which a pattern outside of the subproblem has to join it.

        In `fw` all patterns work; those without weight matter where they keep the gap open.
        """
        if self._problem.algorithm == "mfw":
            return 0.0
        relative, absolute = self._tolerances(is_rough)
        highest = float(state.gradient[state.role == SUPPORT].max())
        return highest - relative * state.quad_form - absolute

    def _tolerances(self, is_rough: bool) -> tuple[float, float]:
        rule = self._problem.stop_rule
        relative, absolute = _ROUNDING * rule.relative, _ROUNDING * rule.absolute
        return (max(_ROUGH, relative) if is_rough else relative), absolute

    def solve(self, block: BlockSolve, pause: Callable[[int], int]) -> Iterator[None]:
        """Take steps until the subproblem is solved; yields as `hot_steps` does."""
        served = self._serve(self._problem.backend, block.index)
        problem = self._problem.part(block.index, served)
        if len(block.index) <= self._hot_set:
            yield from self._steps(block, problem, block.index, pause)
            return
        first_sweep, solved = self._resume(block)
        yield  # as after the last cell, if it resumes there: what was due may not have been done
        for sweep in count(first_sweep):
            for number, cell in enumerate(cells(served, self._cell, sweep)):
                if sweep == first_sweep and number < solved:
                    continue
                if self._is_solved(block) or block.iteration >= block.last:
                    return
                yield from self._solve_cell(block, problem, cell, pause)
                block.state.partial = block.partial_solve(sweep, number + 1)
                yield

    @staticmethod
    def _resume(block: BlockSolve) -> tuple[int, int]:
        """Continue from what a checkpoint has of this subproblem: the sweep, and cells solved."""
        found = block.state.partial
        # It may be of other patterns, after a change of the tolerance.
        if found is None or not np.array_equal(found.index, block.index):
            block.state.partial = None
            return 0, 0
        block.part.alpha[:], block.part.gradient[:] = found.alpha, found.gradient
        block.part.role[:] = found.role
        block.part.iteration, block.part.gap = found.iteration, found.gap
        block.growth, block.quad_form = found.growth, found.quad_form
        return found.sweep, found.cells

    def _solve_cell(
        self, block: BlockSolve, problem: Problem, cell: np.ndarray, pause: Callable[[int], int]
    ) -> Iterator[None]:
        """Solve a part of a subproblem, and bring the gradient of the rest up to date."""
        part, served = block.part, problem.backend
        level = block.quad_form * block.growth
        tolerance = _ROUNDING * self._threshold(block) / 2  # above the level as well as below it
        is_waiting, lowest, highest = self._extremes(part.of(cell))
        violation = max(level - lowest, highest - level)
        if violation <= tolerance and not is_waiting:
            return
        # The subproblem is in ascending order; only the cell is rearranged.
        hot = np.searchsorted(block.index, self._columns.arrange(block.index[cell]))
        rows = self._serve(served, hot)
        inner = block.inner = BlockSolve(
            part,
            hot,
            part.of(hot),
            (0.0, tolerance),
            0,
            block.quad_form,
            block.last,
            level=level,
            growth=block.growth,
        )
        hot_problem, enough = problem.part(hot, rows), _ENOUGH * violation
        yield from self._steps(inner, hot_problem, block.index[hot], pause, enough)
        block.inner = None
        change = inner.part.alpha - part.alpha[hot]
        moved = np.flatnonzero(change)
        moved = moved[np.argsort(hot[moved])]  # the order of a sum is part of its bits
        outside = np.ones(len(block.index), bool)
        outside[hot] = False
        outside = np.flatnonzero(outside)
        moving = GatheredRows(rows, moved, served.rows_at_once)
        part.gradient[outside] += problem.gradient_change_of(
            outside, self._serve(served, outside), hot[moved], change[moved], moving
        )
        part.gradient[hot] = inner.part.gradient
        part.alpha[hot], part.role[hot] = inner.part.alpha, inner.part.role
        part.iteration, part.gap = inner.part.iteration, inner.part.gap
        block.growth, block.quad_form = inner.growth, inner.quad_form

    def _steps(
        self,
        block: BlockSolve,
        problem: Problem,
        index: np.ndarray,
        pause: Callable[[int], int],
        enough: float = 0.0,
    ) -> Iterator[None]:
        """Steps on a hot set, the patterns `index` of the data."""
        self._columns.follow(index, problem.backend)
        yield from hot_steps(block, problem, index, self._columns, self._kernel, pause, enough)

    def _is_solved(self, block: BlockSolve) -> bool:
        is_waiting, lowest, highest = self._extremes(block.part)
        block.part.gap = highest - lowest
        block.quad_form = block.part.quad_form / block.growth**2
        return not is_waiting and block.part.gap <= self._threshold(block)

    @staticmethod
    def _threshold(block: BlockSolve) -> float:
        """The gap of a solved subproblem, as it is before it is normalised."""
        relative, absolute = block.tolerances
        return (relative * max(block.quad_form, 0.0) + absolute) * block.growth

    @staticmethod
    def _extremes(part: State) -> tuple[bool, float, float]:
        """Whether patterns wait to join, and the gradient's extremes that bound the gap."""
        waiting = (part.role == IDLE) & (part.gradient <= 0)
        lowest = part.gradient[waiting | (part.role > IDLE)].min(initial=np.inf)
        highest = part.gradient[part.role == SUPPORT].max(initial=-np.inf)
        return bool(waiting.any()), float(lowest), float(highest)

    def request(self, block: BlockSolve) -> GradientRequest:
        """What `commit_block` needs of a pass."""
        order = np.argsort(block.index)
        index, alpha = block.index[order], block.part.alpha[order]
        change = alpha - block.state.alpha[index]
        moved, support = np.flatnonzero(change), np.flatnonzero(alpha)
        # The support lies in the subproblem.
        from_scratch = block.sample != block.state.sample or len(support) <= len(moved)
        chosen, values = (support, alpha) if from_scratch else (moved, change)
        rows = self._rows_in_play(block) if block.sample else None
        return GradientRequest(index[chosen], values[chosen], from_scratch, block.sample, rows)

    @staticmethod
    def _rows_in_play(block: BlockSolve) -> np.ndarray:
        """The patterns of the sample that the next pass is over."""
        role = block.state.role
        in_play = role >= IDLE
        if block.sample != block.state.sample:
            in_play[k_smallest(HashOrder(len(role)), role != EXCLUDED, block.sample)] = True
        return np.flatnonzero(in_play)

    def commit_block(
        self, block: BlockSolve, request: GradientRequest, gradient: np.ndarray
    ) -> bool:
        """Bring the state up to date with a solved subproblem; whether the run has converged.

        `gradient` is what was requested, of the patterns in play. It comes first: had it failed,
        the state would still be that of the pass before.
        """
        state, index, part = block.state, block.index, block.part
        rows = slice(None) if request.rows is None else request.rows
        if not request.from_scratch:
            gradient += state.gradient[rows]
        gradient /= block.growth
        fall = 0.0 if block.sample else usual_fall(state, gradient, self._idle)
        state.waited = block.waited_in_vain(self._idle)
        if block.sample != state.sample:
            state.waited = None
            here = np.zeros(len(state.role), bool)
            here[rows] = True
            here &= state.role == UNSEEN
            state.role[here] = self._idle
            state.sample = block.sample
        state.gradient[rows] = gradient
        state.alpha[index] = part.alpha
        state.alpha /= block.growth
        off = np.abs(state.gradient[index] - part.gradient / block.growth).max()
        state.drift = float(off) if request.from_scratch and not state.sample else None
        state.role[index] = part.role
        state.iteration = part.iteration
        state.partial = None
        state.passes += 1
        converged = self.stop_test(state)
        if not converged and not state.sample:
            bar = self._bar(state, is_rough=False)
            set_aside(state, self._idle, bar, max(fall, fall_to_come(state)))
        return converged

    def commit_whole(self, block: BlockSolve) -> bool:
        """The same for a subproblem of all patterns: its gradient is that of the state."""
        state, index, part = block.state, block.index, block.part
        state.alpha[index], state.role[index] = part.alpha, part.role
        state.gradient[index] = part.gradient
        state.iteration, state.drift = part.iteration, None
        return self.stop_test(state)

    def stop_test(self, state: State) -> bool:
        """Note the gap; whether the run has converged."""
        state.gap, converged = self._problem.stop_test(state, state.gradient)
        if not np.isfinite(state.gap):
            raise overflowed(state)
        return converged and not state.sample

    def sample_backend(self, request: GradientRequest) -> Backend:
        """Serves the patterns of a sample."""
        samples = self._samples
        assert request.rows is not None
        if samples.backend is None or not np.array_equal(samples.rows, request.rows):
            samples.backend = None  # not two at once
            samples.backend = self._serve(self._problem.backend, request.rows)
            samples.rows = request.rows
        return samples.backend

    def _serve(self, backend: Backend, index: np.ndarray) -> Backend:
        """Some patterns of a backend: in memory, or, where they do not fit, from it."""
        if 2 * 4 * backend.d * len(index) > self._rows_memory:
            return SubsetBackend(backend, index, self._kernel)
        return InMemoryBackend(backend.gather(index), self._kernel, backend.kernel_values)


@dataclass
class _SampleBackend:
    """Serves the sample that was asked for last."""

    rows: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    backend: Backend | None = None
