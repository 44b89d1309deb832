"""The last digits of a small problem: linear equations, once its support is known.

Frank-Wolfe methods find the support soon and its coefficients slowly. At the optimum the
derivatives of the support are equal, so Q alpha is one number there: solved directly, that is exact
to rounding, and the order of the patterns no longer matters.
"""

from dataclasses import replace
from functools import cache

import numpy as np
from threadpoolctl import ThreadpoolController

from bigsvm.solvers.problem import Problem
from bigsvm.solvers.state import IDLE, SUPPORT, WORKING, State

_CHANGES = 30  # of the support; more than ten are rare
_ROUNDING = 1e-12


def polished(problem: Problem, state: State) -> State:
    """The optimum near `state`, with its gradient; `state` itself if it cannot be found.

    Parameters
    ----------
    problem : Problem
        Small enough to hold its whole kernel matrix.
    state : State
        Nearly optimal.

    Returns
    -------
    State
        With the same working set, in which no gap is left.
    """
    # Rounding in BLAS depends on the number of its threads.
    with _threadpools().limit(limits=1, user_api="blas"):
        alpha = _optimum(_matrix(problem), state.alpha, state.role > IDLE)
    if alpha is None:
        return state
    role = np.minimum(state.role, WORKING)
    role[alpha > 0] = SUPPORT
    found = replace(state, alpha=alpha, gradient=problem.gradient(alpha), role=role)
    found.gap, closed = problem.stop_test(found, found.gradient)
    return found if closed and found.gap <= state.gap else state


@cache
def _threadpools() -> ThreadpoolController:
    """The BLAS libraries of this process: finding them takes longer than most small fits."""
    return ThreadpoolController()


def _optimum(q: np.ndarray, alpha: np.ndarray, in_play: np.ndarray) -> np.ndarray | None:
    """Solve for equal derivatives on the support; update the support until it is stable.

    Patterns with a negative coefficient leave it, violators in the working set join it.
    """
    support = np.flatnonzero(alpha)
    for _ in range(_CHANGES):
        try:
            solution = np.linalg.solve(q[np.ix_(support, support)], np.ones(len(support)))
        except np.linalg.LinAlgError:
            return None
        total = solution.sum()
        if not np.isfinite(total) or total <= 0:
            return None
        alpha = np.zeros_like(alpha)
        alpha[support] = solution / total
        lower = q @ alpha < (1 - _ROUNDING) / total  # than the derivatives of the support
        following = np.flatnonzero((alpha > 0) | (in_play & lower & (alpha == 0)))
        if np.array_equal(following, support):
            return alpha
        support = following
    return None


def _matrix(problem: Problem) -> np.ndarray:
    """Q."""
    patterns = np.arange(problem.backend.n)
    kernel = np.empty((len(patterns), len(patterns)), np.float32)
    problem.backend.columns(problem.backend.gather(patterns), kernel, patterns)
    q = (kernel + np.float64(problem.intercept)) * np.outer(problem.signs, problem.signs)
    C = np.broadcast_to(problem.C, patterns.shape)
    q[np.diag_indices_from(q)] += np.divide(1.0, C, out=np.zeros(len(C)), where=C > 0)
    return q
