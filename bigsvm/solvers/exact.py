"""The steps of the `exact` schedule: the paper's loop, iterate by iterate."""

from collections.abc import Callable, Iterator

import numpy as np
from numba import get_num_threads

from bigsvm.core.compiled import use_threads
from bigsvm.core.errors import UserError
from bigsvm.solvers.column_cache import ColumnCache
from bigsvm.solvers.nodes import Iterate, find_nodes
from bigsvm.solvers.problem import Problem
from bigsvm.solvers.state import State
from bigsvm.solvers.steps import (
    AWAY,
    CACHE_MISS,
    CONVERGED,
    FORWARD,
    JOINED_NONE,
    NUMERICAL_FAILURE,
    steps,
)

# Steps in one compiled call, a few milliseconds: an interruption waits no longer.
_BURST = 256
# With fewer patterns, waiting for the other threads costs more than they save on a few columns.
_WORTH_THREADS = 8192


def exact_steps(
    problem: Problem, cache: ColumnCache, state: State, pause: Callable[[int], int]
) -> Iterator[None]:
    """Take steps until the gap is closed: at most one pattern joins in each, then a pairwise step.

    Yields, with `state` up to date, at the iteration ``pause(iteration)`` names as the next, and
    now and then in between.
    """
    worth_threads = len(state.alpha) >= _WORTH_THREADS
    with use_threads(get_num_threads() if worth_threads else 1):
        yield from _bursts(problem, cache, state, pause)


def _bursts(
    problem: Problem, cache: ColumnCache, state: State, pause: Callable[[int], int]
) -> Iterator[None]:
    nodes = np.array([*find_nodes(state.gradient, state.role), JOINED_NONE])
    # Always read-only: writable arrays are another type, for which all would be compiled again.
    signs = np.broadcast_to(problem.signs, len(state.alpha))
    C = np.broadcast_to(problem.C, len(state.alpha))
    iterate = Iterate(state.alpha, state.gradient, state.role, signs, C, problem.intercept)
    rule = float(problem.stop_rule.relative), float(problem.stop_rule.absolute)
    until = state.iteration + 1
    while True:
        until = min(until, pause(state.iteration))
        why, state.iteration, state.gap = steps(
            iterate, cache.at_hand, rule, nodes, state.iteration, until
        )
        if why == CONVERGED:
            return
        if why == NUMERICAL_FAILURE:
            raise overflowed(state)
        if why == CACHE_MISS:
            cache.fetch(nodes[FORWARD], nodes[AWAY], state.gradient, state.role)
            until = state.iteration + 1  # columns may take long: yield after each
        else:
            until = state.iteration + _BURST
            yield


def overflowed(state: State) -> UserError:
    """The error of a loop whose numbers left the range of floating point."""
    return UserError(
        f"iteration {state.iteration}: the gap is {state.gap}, no step can be taken; kernel values "
        "leave the range of float32 or the tolerance that of float64: scale the data "
        "(data.prepare.scaling) or raise solver.tolerance"
    )
