"""Steps on a hot set: hands its iterate to compiled code, computes the columns it needs."""

from collections.abc import Callable, Iterator

import numpy as np

from bigsvm.backends.products import GatheredRows
from bigsvm.kernels import LANES, Kernel, diagonal
from bigsvm.solvers.block_solve import BlockSolve
from bigsvm.solvers.conjugate import (
    AWAY,
    CACHE_MISS,
    CONVERGED,
    FORWARD,
    GAP,
    NUMERICAL_FAILURE,
    QUAD_FORM,
    Point,
    conjugate_steps,
    find_nodes,
    new_direction,
)
from bigsvm.solvers.exact import overflowed
from bigsvm.solvers.hot_columns import HotColumns
from bigsvm.solvers.problem import Problem
from bigsvm.solvers.state import EXCLUDED, SUPPORT

# Patterns swept over in one compiled call, some dozens of milliseconds.
_BURST = 2**24
# The weight in the reservoir: as much as all patterns have together.
_RESERVOIR = 1.0


def hot_steps(
    block: BlockSolve,
    problem: Problem,
    index: np.ndarray,
    columns: HotColumns,
    kernel: Kernel,
    pause: Callable[[int], int],
    enough: float = 0.0,
) -> Iterator[None]:
    """Take steps on the patterns of `block` until its tolerances are met or its last iteration.

    Or, after as many steps as there are patterns, until the gap is at most `enough`. Not earlier: a
    single outlier may account for the whole gap, and one step would close it.

    Where `block` has a level, its patterns need not keep the sum of their alpha. They minimise
    a'Qa / 2 - level * sum(a) over a >= 0, whose solutions are those on the simplex but for their
    scale, and at level = a'Qa / sum(a) that decreases a'Qa / sum(a)^2 as well. To the steps this is
    one more pattern, the reservoir, with a row of zeros in Q and the derivative `level`.

    Yields, with `block` up to date, at the iteration ``pause(iteration)`` names as the next, and
    now and then in between.

    Parameters
    ----------
    block : BlockSolve
    problem : Problem
        That of its patterns.
    index : (m,) int64
        Their numbers in the data.
    columns : HotColumns
        Has followed to them.
    kernel : Kernel
    pause : callable
    enough : float
    """
    part, m = block.part, len(index)
    point = _point(block, problem, index, kernel)
    part.alpha, part.gradient, part.role = point.alpha[:m], point.gradient[:m], point.role[:m]
    if block.level is not None:
        columns.add_reservoir()
    before = block.growth
    direction = new_direction(len(point.alpha), block.quad_form * before**2)
    find_nodes(point, direction)
    burst = max(1, _BURST // len(point.alpha))
    until = part.iteration + burst
    least = part.iteration + m
    relaxed = block.tolerances[0], max(enough, block.tolerances[1])
    while part.iteration < block.last:
        is_worth_it = part.iteration >= least
        why, part.iteration = conjugate_steps(
            point,
            direction,
            columns.at_hand,
            relaxed if is_worth_it else block.tolerances,
            part.iteration,
            min(until, pause(part.iteration), block.last, until if is_worth_it else least),
        )
        part.gap = float(direction.numbers[GAP])
        block.quad_form = float(direction.numbers[QUAD_FORM])
        if block.level is not None:
            taken = _RESERVOIR - float(point.alpha[m])
            # The steps have counted the reservoir's share, too: -2 * level * taken.
            quad_form = float(direction.numbers[QUAD_FORM]) + 2 * block.level * taken
            block.growth = before + taken
            block.quad_form = quad_form / block.growth**2
        if why == CONVERGED:
            return
        if why == NUMERICAL_FAILURE:
            raise overflowed(part)
        if why == CACHE_MISS:
            forward, away = direction.nodes[FORWARD], direction.nodes[AWAY]
            needed, kept = (forward, away) if columns.slot[forward] < 0 else (away, forward)
            columns.fetch(needed, kept, point.gradient, point.role)
        else:
            until = part.iteration + burst
        yield


def _point(block: BlockSolve, problem: Problem, index: np.ndarray, kernel: Kernel) -> Point:
    part, m = block.part, len(index)
    with_reservoir = block.level is not None
    padding = -(m + with_reservoir) % LANES

    def padded(values: np.ndarray, kind: type, reservoir: float, filler: float) -> np.ndarray:
        fillers = [reservoir] * with_reservoir + [filler] * padding
        return np.concatenate([values, fillers]).astype(kind)

    signs = problem.signs.astype(np.float64)
    inverse_C = 1.0 / np.broadcast_to(problem.C, m)
    rows = GatheredRows(problem.backend, np.arange(m), problem.backend.rows_at_once)
    q = signs * signs * (diagonal(kernel, rows) + problem.intercept) + inverse_C
    last, real = np.iinfo(np.int64).max, problem.signs.dtype.type
    return Point(
        padded(part.alpha, np.float64, _RESERVOIR, 0.0),
        padded(part.gradient, np.float64, block.level or 0.0, 0.0),
        padded(part.role, np.int8, SUPPORT, EXCLUDED),
        padded(index, np.int64, last, last),
        padded(problem.signs, real, 0.0, 0.0),
        padded(q, np.float64, 0.0, 1.0),
        float(problem.intercept),
    )
