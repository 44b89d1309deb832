"""Training in memory, signs in and coefficients out: all that the estimator asks of a solver."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from bigsvm.backends import Backend
from bigsvm.kernels import Kernel
from bigsvm.solvers import HOT_SET
from bigsvm.solvers.block import BlockSchedule
from bigsvm.solvers.column_cache import space_for_columns
from bigsvm.solvers.exact import ExactSchedule
from bigsvm.solvers.problem import Problem
from bigsvm.solvers.state import IDLE, SUPPORT, WORKING, State


@dataclass(frozen=True)
class FitOptions:
    """What to solve and how; `memory` is the bytes for kernel values, `initial` the first row."""

    kernel: Kernel
    C: float
    algorithm: str
    schedule: str
    tolerance: float
    memory: int
    initial: int


@dataclass(frozen=True)
class Fitted:
    """One trained two-class problem.

    Attributes
    ----------
    alpha : (n,) float64
        A point of the simplex.
    margin : float
        alpha' Q alpha; the decision values of support vectors are about that size.
    iterations : int
    gap : float
        Under a gradient computed from alpha alone.
    status : str
        "converged", or what `stop` said.
    """

    alpha: np.ndarray
    margin: float
    iterations: int
    gap: float
    status: str


def fit_signs(
    backend: Backend,
    signs: np.ndarray,
    options: FitOptions,
    stop: Callable[[State], str | None],
    start: np.ndarray | None = None,
) -> Fitted:
    """Train one class against the other.

    Parameters
    ----------
    backend : Backend
        Serves the kernel of the rows.
    signs : (n,) int8
        -1 and +1.
    options : FitOptions
    stop : callable
        Asked after every step, or with the block schedule after every pass; a status ends it.
    start : (n,) float64, optional
        The alpha to go on from.
    """
    problem = Problem(backend, signs, options.C, options.algorithm, options.tolerance)
    state = _state_at(problem, options.initial, start)
    schedule: ExactSchedule | BlockSchedule
    if options.schedule == "exact":
        schedule = ExactSchedule(problem, space_for_columns(options.memory, backend.n))
    else:
        schedule = BlockSchedule(problem, options.kernel, options.memory)
    while True:
        status = next((end for now in schedule.run(state) if (end := stop(now))), "converged")
        gradient = problem.gradient(state.alpha)
        gap, closed = problem.stop_test(state, gradient)
        if status != "converged" or closed:
            margin = float(state.alpha @ gradient)
            return Fitted(state.alpha, margin, state.iteration, gap, status)
        state.gradient[:] = gradient  # the running gradient had drifted: go on


def _state_at(problem: Problem, initial: int, alpha: np.ndarray | None) -> State:
    """The state to start from: one row, or all that a former fit found."""
    if alpha is None:
        return problem.start(initial, HOT_SET)
    first = problem.start(int(alpha.argmax()), HOT_SET)
    role = np.full(len(alpha), WORKING if problem.algorithm == "fw" else IDLE, np.int8)
    role[alpha > 0] = SUPPORT
    return replace(first, alpha=alpha.copy(), gradient=problem.gradient(alpha), role=role)
