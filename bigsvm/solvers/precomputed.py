"""Training on a precomputed kernel matrix: one compiled call for every C.

For some thousands of patterns the matrix fits in memory. It is then a column cache in which nothing
is ever missing, so the steps are those of the exact schedule, and the iterates the same bits.

One matrix serves every fold of a cross-validation: patterns held out take no part, yet the sweep
keeps their derivatives up to date like all others, and those are their decision values.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bigsvm.core.compiled import njit
from bigsvm.core.stop_rule import StopRule
from bigsvm.kernels import Kernel, block_of, columns
from bigsvm.solvers import steps as pairwise
from bigsvm.solvers.nodes import Iterate, find_nodes, pairwise_gap
from bigsvm.solvers.state import EXCLUDED, IDLE, SUPPORT, WORKING, quad_form

CONVERGED, MAX_ITERATIONS, NUMERICAL_FAILURE, STOPPED = range(4)
# Steps between two looks at `Limits.stop`: a few milliseconds, at most some dozens.
_BURST = 4096


@dataclass(frozen=True)
class Limits:
    """When a run ends.

    Attributes
    ----------
    stop_rule : StopRule
    max_iterations : int
    stop : (1,) bool, optional
        Set it from another thread to end all runs early.
    """

    stop_rule: StopRule
    max_iterations: int = 1_000_000
    stop: np.ndarray | None = None


class _Task(NamedTuple):
    """What all runs share, for compiled code."""

    matrix: Any
    y: Any
    intercept: Any
    held_out: Any
    begins_idle: Any
    initial: Any
    rule: Any
    max_iterations: Any
    stop: Any


@dataclass(frozen=True)
class Solutions:
    """One solution for each C.

    Attributes
    ----------
    alpha : (runs, n) float64
        Points of the simplex; 0 where a pattern is held out.
    decisions : (runs, n) float64
        f(x_i) = sum_j alpha_j y_j (k(x_j, x_i) + intercept) for all patterns, those held out too.
    iterations, working : (runs,) int64
        Steps taken, and the size of the working set.
    gap : (runs,) float64
        Under a gradient computed from alpha alone.
    status : (runs,) int64
        CONVERGED, MAX_ITERATIONS, NUMERICAL_FAILURE (the numbers left the range of floating
        point), or STOPPED from outside.
    """

    alpha: np.ndarray
    decisions: np.ndarray
    iterations: np.ndarray
    working: np.ndarray
    gap: np.ndarray
    status: np.ndarray

    @property
    def converged(self) -> np.ndarray:
        """Whether the gap was closed, (runs,) bool."""
        return self.status == CONVERGED

    @property
    def support(self) -> np.ndarray:
        """The number of support vectors, (runs,) int64."""
        return np.count_nonzero(self.alpha, axis=1)


def kernel_matrix(kernel: Kernel, rows: np.ndarray, others: np.ndarray | None = None) -> np.ndarray:
    """k(row j, other i) at [j, i], float32; without `others` the whole matrix of `rows`.

    In single precision, as everywhere: the same values a column cache would hold, in half the
    memory. Uses numba's threads, so only one caller at a time.
    """
    block = block_of(rows if others is None else others)
    matrix = np.empty((len(rows), block.stop), np.float32)
    columns(kernel, block, rows, matrix, np.arange(len(rows)))
    return matrix


def solve(
    matrix: np.ndarray,
    y: np.ndarray,
    C: Sequence[float] | np.ndarray,
    algorithm: str,
    limits: Limits,
    initial: int = 0,
    held_out: np.ndarray | None = None,
    intercept: float = 0.0,
) -> Solutions:
    """Train for every C, each from the same first pattern.

    One after the other in this thread, without the GIL: threads may each call it, on the same
    matrix.

    Parameters
    ----------
    matrix : (n, n) float32
        Kernel values of all patterns; see `kernel_matrix`.
    y : (n,) int8
        -1 and +1.
    C : sequence of float, or (runs, n) float64
        One for all patterns, or that of each; where it is 0 the pattern takes no part.
    algorithm : {"fw", "mfw"}
    limits : Limits
    initial : int
        The first pattern, by its place in the matrix.
    held_out : (n,) bool, optional
        Patterns that take no part in training; they only get decision values.
    intercept : float
        The b0 added to the kernel.
    """
    n, runs = len(y), len(C)
    of_each = np.broadcast_to(C if np.ndim(C) == 2 else np.reshape(C, (runs, 1)), (runs, n))
    held_out = np.zeros(n, bool) if held_out is None else np.array(held_out, bool)
    if held_out[initial]:
        raise ValueError(f"the first pattern, {initial}, is held out")
    solutions = Solutions(
        np.zeros((runs, n)),
        np.empty((runs, n)),
        np.zeros(runs, np.int64),
        np.zeros(runs, np.int64),
        np.zeros(runs),
        np.full(runs, STOPPED),
    )
    task = _Task(
        np.ascontiguousarray(matrix, np.float32),
        np.array(y, np.int8),
        float(intercept),
        held_out,
        algorithm == "mfw",
        int(initial),
        (float(limits.stop_rule.relative), float(limits.stop_rule.absolute)),
        int(limits.max_iterations),
        np.zeros(1, bool) if limits.stop is None else limits.stop,
    )
    _solve_each(task, np.ascontiguousarray(of_each, np.float64), tuple(vars(solutions).values()))
    return solutions


def decisions(cross: np.ndarray, y: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """Decision values (runs, m) of other rows; ``cross[j, i] = k(pattern j, row i)``, (n, m)."""
    out = np.empty((len(alpha), cross.shape[1]))
    for run in range(len(alpha)):
        _decide(cross, np.array(y, np.int8), alpha[run], 0.0, out[run])
    return out


@njit(cache=True, nogil=True)
def _solve_each(task, C, solutions):  # type: ignore[no-untyped-def]
    alpha, decided, iterations, working, gap, status = solutions
    n = len(task.y)
    gradient, role = np.empty(n), np.empty(n, np.int8)
    for run in range(len(C)):
        iterate = Iterate(alpha[run], gradient, role, task.y, C[run], task.intercept)
        _start(task, iterate)
        status[run], iterations[run], gap[run] = _solve(task, iterate, decided[run])
        working[run] = np.sum(role > IDLE)
        if status[run] == STOPPED:
            return


@njit(cache=True, nogil=True)
def _start(task, iterate):  # type: ignore[no-untyped-def]
    """All weight on one pattern."""
    alpha, gradient, role, y, C, intercept = iterate
    initial = task.initial
    for i in range(len(y)):
        alpha[i] = 0.0
        gradient[i] = (np.float64(task.matrix[initial, i]) + intercept) * y[i] * y[initial]
        if task.held_out[i] or C[i] == 0:
            role[i] = EXCLUDED
        else:
            role[i] = IDLE if task.begins_idle else WORKING
    gradient[initial] += 1.0 / C[initial]
    alpha[initial] = 1.0
    role[initial] = SUPPORT


@njit(cache=True, nogil=True)
def _solve(task, iterate, decided):  # type: ignore[no-untyped-def]
    """Steps until convergence under a gradient recomputed from alpha, or until a limit.

    Returns status, iterations and that gap.
    """
    alpha, gradient, role, y, C, intercept = iterate
    n = len(y)
    columns = pairwise.CachedColumns(
        task.matrix, np.arange(n).astype(np.int32), np.zeros(n, np.int64), 0
    )
    nodes = np.empty(4, np.int64)
    iteration = 0
    while True:
        nodes[0], nodes[1], nodes[2] = find_nodes(gradient, role)
        nodes[pairwise.JOINED] = pairwise.JOINED_NONE
        why = pairwise.PAUSED
        while why == pairwise.PAUSED and iteration < task.max_iterations:
            if task.stop[0]:
                return STOPPED, iteration, np.inf
            until = min(iteration + _BURST, task.max_iterations)
            why, iteration, gap = pairwise.steps(
                iterate, columns, task.rule, nodes, iteration, until
            )
        _decide(task.matrix, y, alpha, intercept, decided)
        for i in range(n):
            gradient[i] = y[i] * decided[i]
            if alpha[i] != 0:  # a C of 0 is that of a pattern which takes no part
                gradient[i] += alpha[i] / C[i]
        gap, joins = pairwise_gap(gradient, role)
        threshold = task.rule[0] * max(quad_form(alpha, gradient), 0.0) + task.rule[1]
        if why == pairwise.CONVERGED and gap <= threshold and not joins:
            return CONVERGED, iteration, gap
        if why == pairwise.PAUSED:
            return MAX_ITERATIONS, iteration, gap
        if why != pairwise.CONVERGED or not np.isfinite(gap):
            return NUMERICAL_FAILURE, iteration, gap
        # The running gradient had drifted: continue from the recomputed one.


@njit(cache=True, nogil=True)
def _decide(cross, y, alpha, intercept, out):  # type: ignore[no-untyped-def]
    """sum_j alpha_j y_j (cross[j] + intercept), in the order of the patterns."""
    out[:] = intercept * np.sum(alpha * y)
    for j in range(len(alpha)):
        if alpha[j] != 0:
            coef = alpha[j] * y[j]
            row = cross[j]
            for i in range(len(out)):
                out[i] += coef * np.float64(row[i])
