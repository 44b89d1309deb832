"""Training for the estimator: labels in, coefficients out."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from bigsvm.backends import Backend
from bigsvm.config import HOT_SET
from bigsvm.core.stop_rule import StopRule
from bigsvm.kernels import Kernel
from bigsvm.solvers.block import BlockSchedule
from bigsvm.solvers.class_states import ClassStates
from bigsvm.solvers.column_cache import space_for_columns
from bigsvm.solvers.diagnosis import diagnose
from bigsvm.solvers.exact import ExactSchedule
from bigsvm.solvers.multiclass import MulticlassBlock, MulticlassExact
from bigsvm.solvers.one_vs_rest import OneVsRest
from bigsvm.solvers.polish import polished
from bigsvm.solvers.problem import Problem
from bigsvm.solvers.reweight import Reweighting
from bigsvm.solvers.state import State, relative_gap

# Up to this many rows the plain SVM is solved to rounding, so that the result does not depend on
# the order of the rows; its additional support vectors cost little.
SMALL = 1000
# Iterations between two iterates that the block schedule yields.
_PAUSE = 1000
# The same with a callback; more often, copying the iterate would dominate.
_PAUSE_WITH_CALLBACK = 50


@dataclass(frozen=True)
class FitOptions:
    """The problem to solve, and how to solve it.

    Attributes
    ----------
    kernel : Kernel
    C : float or (n,) float64
        One value, or one per row.
    algorithm : {"fw", "mfw"}
    schedule : {"exact", "block"}
    stop_rule : StopRule
    memory : int
        Bytes for kernel values.
    initial : int
        The row to start from.
    max_iterations : int
    hot_set : int
        The most rows in a hot set of the block schedule.
    margin : (n,) float64 or None
        The margin asked of each row.
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
        """Whether C or the margin differs between rows."""
        return isinstance(self.C, np.ndarray) or bool(self.reweighting) or self.margin is not None


@dataclass(frozen=True)
class FitResult:
    """The solution of one two-class problem.

    Attributes
    ----------
    alpha : (n,) float64
        A point of the simplex.
    coef : (n,) float64
        The dual coefficient of each row, in units of the margin.
    iterations : int
    gap : float
        Under a gradient recomputed from alpha.
    relative_gap : float
        gap / a'Qa.
    status : str
        "converged", or what `stop` returned.
    passes : int
        Passes over the rows.
    useless : str or None
        Why the model is hardly better than guessing; see `diagnose`.
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
) -> FitResult:
    """Train on two classes.

    Parameters
    ----------
    backend : Backend
        Serves the rows and their kernel values.
    signs : (n,) int8
        -1 and +1.
    options : FitOptions
    stop : callable
        Called with iterates; a status that it returns ends the fit.
    start : (n,) float64, optional
        The alpha to start from.
    every_step : bool
        Call `stop` after every step of the exact schedule and every 50 steps of the block schedule.

    Returns
    -------
    FitResult
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
        final, _, converged = problem.verified(state, last)
        if status == "converged" and not converged:
            state.correct(final)  # the updated gradient had drifted: continue
            continue
        if status == "converged" and backend.n <= SMALL:
            final = polished(problem, final)
        rounds = options.reweighting
        if status != "converged" or rounds is None or final.round >= rounds.rounds:
            useless = diagnose([final], [problem], status == "converged")
            return replace(result_at(problem, final, status), useless=useless)
        state = rounds.next_round(problem, final)


def fit_multiclass(
    backend: Backend,
    codes: np.ndarray,
    count: int,
    options: FitOptions,
    stop: Callable[[ClassStates], str | None],
    starts: Iterable[np.ndarray] | None = None,
    every_step: bool = False,
) -> list[FitResult]:
    """Train each class against the rest; the classes share all kernel values.

    The alpha of each class is, bit for bit, that of `fit_binary` for the class alone.

    Parameters
    ----------
    backend : Backend
        Serves the rows and their kernel values.
    codes : (n,) integers
        The class of each row, from 0 to `count` - 1.
    count : int
        The number of classes.
    options : FitOptions
        `max_iterations` applies to each class.
    stop : callable
        Called with the iterates of all classes; a status that it returns ends the fit of those
        that have not converged.
    starts : (n,) float64 each, optional
        The alpha to start from, for each class.
    every_step : bool
        As for `fit_binary`.

    Returns
    -------
    list of FitResult
        One for each class.
    """
    problem = OneVsRest(
        backend, codes, count, options.C, options.algorithm, options.stop_rule, options.margin,
        options.intercept,
    )  # fmt: skip
    if starts is None:
        states = problem.start(options.initial)
    else:
        each = zip(problem.classes, starts, strict=True)
        states = ClassStates([start_state(of_class, options, alpha) for of_class, alpha in each])
    schedule: MulticlassExact | MulticlassBlock
    limit = options.max_iterations
    if options.schedule == "exact":
        schedule = MulticlassExact(problem, space_for_columns(options.memory, backend.n), limit)
    else:
        schedule = MulticlassBlock(problem, options.kernel, options.memory, options.hot_set, limit)
    pause = pauses(options, every_step)
    while True:
        status, final = None, states
        for final in schedule.run(states, pause):
            if status := stop(final):
                break
        limited = final.reached(limit)
        verified = problem.verified(states, final)
        if status or limited or verified.converged:
            return _class_results(verified.final, problem, status or "max_iter")
        states.correct(verified.final)  # the updated gradient had drifted: continue


def _class_results(final: ClassStates, problem: OneVsRest, otherwise: str) -> list[FitResult]:
    fits, states = [], []
    for k, (of_class, state) in enumerate(zip(problem.classes, final.classes, strict=True)):
        closed = k in final.closed
        if closed and problem.backend.n <= SMALL:
            state = polished(of_class, state)
        states.append(state)
        fits.append(result_at(of_class, state, "converged" if closed else otherwise))
    useless = diagnose(states, problem.classes, len(final.closed) == len(states))
    return [replace(result, useless=useless) for result in fits]


def start_state(problem: Problem, options: FitOptions, alpha: np.ndarray | None) -> State:
    """The state to start from: a single row, or the alpha of an earlier fit."""
    if alpha is None or alpha[problem.signs == 0].any():  # rows that are now excluded
        return problem.start(options.initial)
    return problem.state_at(alpha.copy())


def pauses(options: FitOptions, every_step: bool) -> Callable[[int], int]:
    """The function that tells a schedule at which iteration to yield next."""
    if every_step and options.schedule == "exact":
        return lambda iteration: iteration + 1
    every = _PAUSE_WITH_CALLBACK if every_step else _PAUSE
    return lambda iteration: (iteration // every + 1) * every


def result_at(problem: Problem, state: State, status: str) -> FitResult:
    """The result at `state`, whose gradient was recomputed from alpha."""
    gap, _ = problem.stop_test(state, state.gradient)
    coef = problem.dual_coef(np.arange(len(state.alpha)), state.alpha) / state.quad_form
    share = relative_gap(gap, state.quad_form)
    return FitResult(state.alpha, coef, state.iteration, gap, share, status, state.passes)


def _run(
    steps: Iterator[State], state: State, limit: int, stop: Callable[[State], str | None]
) -> tuple[str, State]:
    """The status, and the last iterate: the block schedule may be ahead of `state`."""
    last = state
    for now in steps:
        if now.iteration >= last.iteration:
            last = now
        if status := stop(now):
            return status, last
        if now.iteration >= limit:
            return "max_iter", last
    return "converged", state
