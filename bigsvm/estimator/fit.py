"""Training for the estimator: signs in, coefficients out."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from bigsvm.backends import Backend
from bigsvm.config import HOT_SET
from bigsvm.core.stop_rule import StopRule
from bigsvm.kernels import Kernel
from bigsvm.solvers.block import BlockSchedule
from bigsvm.solvers.column_cache import space_for_columns
from bigsvm.solvers.diagnosis import diagnose
from bigsvm.solvers.exact import ExactSchedule
from bigsvm.solvers.polish import polished
from bigsvm.solvers.problem import Problem
from bigsvm.solvers.reweight import Reweighting
from bigsvm.solvers.state import State, relative_gap

# So few rows have the plain SVM, and that to the last digit: it is the same in whatever order they
# stand, and its support vectors cost nothing.
SMALL = 1000
# Iterations after which it is known, at the latest, how far a hot set has come.
_LATELY = 1000
# The same where there is a callback: every step would cost a copy of the iterate.
_OFTEN = 50


@dataclass(frozen=True)
class FitOptions:
    """What to solve and how.

    Attributes
    ----------
    kernel : Kernel
    C : float or (n,) float64
        One for all, or that of each row.
    algorithm : {"fw", "mfw"}
    schedule : {"exact", "block"}
    stop_rule : StopRule
    memory : int
        Bytes for kernel values.
    initial : int
        The first row.
    max_iterations : int
    hot_set : int
        Width of the block schedule.
    margin : (n,) float64 or None
        What is asked of each row.
    intercept : float
        Added to the kernel.
    reweighting : Reweighting or None
    """

    kernel: Kernel
    C: float | np.ndarray
    algorithm: str
    schedule: str
    stop_rule: StopRule
    memory: int
    initial: int
    max_iterations: int = 2**62
    hot_set: int = HOT_SET
    margin: np.ndarray | None = None
    intercept: float = 0.0
    reweighting: Reweighting | None = None

    @property
    def weighted(self) -> bool:
        """Whether rows have a C or a margin of their own."""
        return isinstance(self.C, np.ndarray) or bool(self.reweighting) or self.margin is not None


@dataclass(frozen=True)
class Fitted:
    """One trained two-class problem.

    Attributes
    ----------
    alpha : (n,) float64
        A point of the simplex.
    coef : (n,) float64
        What each row counts in a decision, in units of the margin.
    iterations : int
    gap : float
        Under a gradient computed from alpha alone.
    relative_gap : float
        gap / a'Qa.
    status : str
        "converged", or what `stop` said.
    passes : int
        Over the rows.
    useless : str or None
        Why the model, of all classes together, is worth little; see `diagnose`.
    """

    alpha: np.ndarray
    coef: np.ndarray
    iterations: int
    gap: float
    relative_gap: float
    status: str
    passes: int
    useless: str | None = None


def fit_binary(
    backend: Backend,
    signs: np.ndarray,
    options: FitOptions,
    stop: Callable[[State], str | None],
    start: np.ndarray | None = None,
    every_step: bool = False,
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
        Asked now and then; a status ends it.
    start : (n,) float64, optional
        The alpha to go on from.
    every_step : bool
        Ask after every step of the exact schedule, and every 50 steps of the block schedule.

    Returns
    -------
    Fitted
    """
    problem = Problem(
        backend, signs, options.C, options.algorithm, options.stop_rule, options.margin,
        options.intercept,
    )  # fmt: skip
    state = start_state(problem, options, start)
    schedule: ExactSchedule | BlockSchedule
    if options.schedule == "exact":
        schedule = ExactSchedule(problem, space_for_columns(options.memory, backend.n))
    else:
        schedule = BlockSchedule(problem, options.kernel, options.memory, options.hot_set)
    pause, limit = pauses(options, every_step), options.max_iterations
    while True:
        steps = schedule.run(state, lambda i: min(pause(i), max(limit, i + 1)))
        status, last = _run(steps, state, limit, stop)
        final, _, may_end = problem.verified(state, last)
        if status == "converged" and not may_end:
            state.correct(final)  # the running gradient had drifted: go on
            continue
        if status == "converged" and backend.n <= SMALL:
            final = polished(problem, final)
        rounds = options.reweighting
        if status != "converged" or rounds is None or final.round >= rounds.rounds:
            useless = diagnose([final], [problem], status == "converged")
            return replace(fitted_at(problem, final, status), useless=useless)
        state = rounds.next_round(problem, final)


def start_state(problem: Problem, options: FitOptions, alpha: np.ndarray | None) -> State:
    """The state to start from: one row, or all that a former fit found."""
    if alpha is None or alpha[problem.signs == 0].any():  # of rows that take no part any more
        return problem.start(options.initial)
    return problem.state_at(alpha.copy())


def pauses(options: FitOptions, every_step: bool) -> Callable[[int], int]:
    """The next iteration after one at which a schedule has to show what it has found."""
    if every_step and options.schedule == "exact":
        return lambda iteration: iteration + 1
    often = _OFTEN if every_step else _LATELY
    return lambda iteration: (iteration // often + 1) * often


def fitted_at(problem: Problem, state: State, status: str) -> Fitted:
    """What was found, with the gradient of `state` computed from its alpha alone."""
    gap, _ = problem.stop_test(state, state.gradient)
    coef = problem.dual_coef(np.arange(len(state.alpha)), state.alpha) / state.level
    share = relative_gap(gap, state.level)
    return Fitted(state.alpha, coef, state.iteration, gap, share, status, state.passes)


def _run(
    steps: Iterator[State], state: State, limit: int, stop: Callable[[State], str | None]
) -> tuple[str, State]:
    """Why it ended, and the last that is known: the block schedule may be ahead of `state`."""
    last = state
    for now in steps:
        if now.iteration >= last.iteration:
            last = now
        if status := stop(now):
            return status, last
        if now.iteration >= limit:
            return "max_iter", last
    return "converged", state
