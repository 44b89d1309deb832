"""Training more than two classes for the estimator, together: codes in and coefficients out."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from bigsvm.backends import Backend
from bigsvm.estimator.fit import SMALL, FitOptions, Fitted, fitted_at, pauses, start_state
from bigsvm.solvers.class_states import ClassStates
from bigsvm.solvers.column_cache import space_for_columns
from bigsvm.solvers.diagnosis import diagnose
from bigsvm.solvers.in_turns import BlockInTurns, ExactInTurns
from bigsvm.solvers.one_vs_rest import OneVsRest
from bigsvm.solvers.polish import polished


def fit_classes(
    backend: Backend,
    codes: np.ndarray,
    count: int,
    options: FitOptions,
    stop: Callable[[ClassStates], str | None],
    starts: Iterable[np.ndarray] | None = None,
    every_step: bool = False,
) -> list[Fitted]:
    """Train each class against the rest; all share every kernel value.

    Each comes to the alpha that `fit_binary` gives for that class alone, bit for bit.

    Parameters
    ----------
    backend : Backend
        Serves the kernel of the rows.
    codes : (n,) integers
        The class of each row, from 0 to `count` - 1.
    count : int
        Of the classes.
    options : FitOptions
        The limit of iterations is for each class.
    stop : callable
        Asked now and then, with all classes as they are; a status ends the fit of those that are
        not done.
    starts : (n,) float64 each, optional
        For each class the alpha to go on from.
    every_step : bool
        As for `fit_binary`.

    Returns
    -------
    list of Fitted
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
    schedule: ExactInTurns | BlockInTurns
    limit = options.max_iterations
    if options.schedule == "exact":
        schedule = ExactInTurns(problem, space_for_columns(options.memory, backend.n), limit)
    else:
        schedule = BlockInTurns(problem, options.kernel, options.memory, options.hot_set, limit)
    pause = pauses(options, every_step)
    while True:
        status, final = None, states
        for final in schedule.run(states, pause):
            if status := stop(final):
                break
        limited = final.reached(limit)
        verified = problem.verified(states, final)
        if status or limited or verified.may_end:
            return _fitted(verified.final, problem, status or "max_iter")
        states.correct(verified.final)  # the running gradient had drifted: go on


def _fitted(final: ClassStates, problem: OneVsRest, otherwise: str) -> list[Fitted]:
    fits, states = [], []
    for k, (of_class, state) in enumerate(zip(problem.classes, final.classes, strict=True)):
        closed = k in final.closed
        if closed and problem.backend.n <= SMALL:
            state = polished(of_class, state)
        states.append(state)
        fits.append(fitted_at(of_class, state, "converged" if closed else otherwise))
    useless = diagnose(states, problem.classes, len(final.closed) == len(states))
    return [replace(fitted, useless=useless) for fitted in fits]
