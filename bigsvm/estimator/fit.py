"""Training for the estimator: labels in, coefficients out."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from bigsvm.backends import Backend
from bigsvm.config import HOT_SET
from bigsvm.core.stop_rule import StopRule
from bigsvm.kernels import Kernel
from bigsvm.solvers.column_cache import space_for_columns
from bigsvm.solvers.diagnosis import diagnose
from bigsvm.solvers.joint import JointProblem, JointState
from bigsvm.solvers.problem import Problem
from bigsvm.solvers.reweight import Reweighting
from bigsvm.solvers.schedule import BlockSchedule, ExactSchedule, Schedule
from bigsvm.solvers.solve import Monitor, Task, solve
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
        The margin required of each row.
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
        "converged", "max_iter", or what the monitor returned.
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


def fit_classes(
    backend: Backend,
    signs: Sequence[np.ndarray],
    options: FitOptions,
    monitor: Monitor,
    starts: Iterable[np.ndarray] | None = None,
) -> list[FitResult]:
    """Train each class against the rest; the classes share all kernel values.

    The alpha of each class is, bit for bit, that of a fit of the class alone.

    Parameters
    ----------
    backend : Backend
        Serves the rows and their kernel values.
    signs : sequence of (n,) int8
        -1 and +1, for each class; for two classes, one array.
    options : FitOptions
        `max_iterations` applies to each class.
    monitor : Monitor
        A status that it returns ends the fit of the classes that have not converged.
    starts : (n,) float64 each, optional
        The alpha to start from, for each class.

    Returns
    -------
    list of FitResult
        One for each class.
    """
    problem = JointProblem(class_problems(backend, signs, options))
    if starts is None:
        state = problem.start(options.initial)
    else:
        each = zip(problem.classes, starts, strict=True)
        state = JointState([_start_state(of_class, options, alpha) for of_class, alpha in each])
    schedule: Schedule
    limit = options.max_iterations
    if options.schedule == "exact":
        schedule = ExactSchedule(problem, space_for_columns(options.memory, backend.n), limit)
    else:
        schedule = BlockSchedule(problem, options.kernel, options.memory, options.hot_set, limit)
    polish = backend.n <= SMALL
    outcome = solve(Task(problem, schedule, state, options.reweighting, polish), monitor)
    final, status = outcome.final, outcome.status.replace("max_iterations", "max_iter")
    useless = diagnose(final.classes, problem.classes, len(final.closed) == len(signs))
    statuses = ["converged" if k in final.closed else status for k in range(len(signs))]
    return [
        result_at(of_class, end, status, useless)
        for of_class, end, status in zip(problem.classes, final.classes, statuses, strict=True)
    ]


def class_problems(
    backend: Backend, signs: Sequence[np.ndarray], options: FitOptions
) -> list[Problem]:
    """The problem of each class against the rest."""
    what = (options.C, options.algorithm, options.stop_rule, options.margin, options.intercept)
    return [Problem(backend, of_class, *what) for of_class in signs]


def _start_state(problem: Problem, options: FitOptions, alpha: np.ndarray) -> State:
    """The state to start from: the alpha of an earlier fit, or a single row."""
    if alpha[problem.signs == 0].any():  # rows that are now excluded
        return problem.start(options.initial)
    return problem.state_at(alpha.copy())


def pauses(options: FitOptions, every_step: bool) -> Callable[[int], int]:
    """The function that tells a schedule at which iteration to yield next."""
    if every_step and options.schedule == "exact":
        return lambda iteration: iteration + 1
    every = _PAUSE_WITH_CALLBACK if every_step else _PAUSE
    return lambda iteration: (iteration // every + 1) * every


def result_at(problem: Problem, state: State, status: str, useless: str | None) -> FitResult:
    """The result at `state`, whose gradient was recomputed from alpha."""
    gap, _ = problem.stop_test(state, state.gradient)
    coef = problem.dual_coef(np.arange(len(state.alpha)), state.alpha) / state.quad_form
    share = relative_gap(gap, state.quad_form)
    return FitResult(state.alpha, coef, state.iteration, gap, share, status, state.passes, useless)
