"""Models that are worth little although nothing went wrong: what to tell the user."""

from collections.abc import Sequence

import numpy as np

from bigsvm.solvers.problem import Problem
from bigsvm.solvers.state import EXCLUDED, State, pieces

# A decision value below this share of the margin is rounding.
_NONE = 1e-9
# Kernel values below this count as 0.
_UNSEEN = 1e-30
# One pattern in so many is nothing to worry about.
_FEW = 100
# Support vectors that stand for all where kernel values are looked at.
_SAMPLE = 32
_TOO_NARROW = (
    "the kernel is too narrow for this data: raise its sigma (lower gamma), or scale the features"
)


def diagnose(states: Sequence[State], problems: Sequence[Problem], converged: bool) -> str | None:
    """Why the model at the end of a training is worth little, in one sentence; None if it is not.

    Parameters
    ----------
    states : sequence of State
        The last iterate, of each class where there are more than two; gradients up to date.
    problems : sequence of Problem
        Those that they are iterates of.
    converged : bool
        Whether the stop rule ended the training.
    """
    if converged and (found := _tolerance_above_margin(states, problems)) is not None:
        return found
    undecided, taking_part = _undecided(states, problems)
    count, n = np.count_nonzero(undecided), np.count_nonzero(taking_part)
    if count > n // _FEW:
        told = f"the decision value is 0 for {count:,} of {n:,} training patterns: "
        if _seen(states, problems, undecided) == 0:
            return told + f"between them and the support vectors {_TOO_NARROW}"
        if not converged:
            return told + "the training ended too early to decide about them; let it go on"
        return told + (
            "as the kernel sees them, rows of both classes are the same there; lower its sigma "
            "(raise gamma), scale the features, or add features that tell the classes apart"
        )
    support = _support(states)
    if len(support) >= n - n // _FEW:
        others = taking_part.copy()
        others[_sample(support)] = False
        if _seen(states, problems, others) <= np.count_nonzero(others) // _FEW:
            return (
                f"all but {n - len(support):,} of {n:,} training patterns are support vectors, and "
                f"kernel values between them are 0: {_TOO_NARROW}"
            )
    return None


def _tolerance_above_margin(states: Sequence[State], problems: Sequence[Problem]) -> str | None:
    for state, problem in zip(states, problems, strict=True):
        gap, _ = problem.stop_test(state, state.gradient)
        if problem.stop_rule.absolute and gap >= state.level:
            return (
                f"the gap is as large as the margin ({gap:.1e}, {state.level:.1e}), so the model "
                "is not worth having, though by the absolute tolerance it has converged; use the "
                "relative tolerance"
            )
    return None


def _undecided(
    states: Sequence[State], problems: Sequence[Problem]
) -> tuple[np.ndarray, np.ndarray]:
    """For which patterns all decision values are 0 but for rounding; and which take part at all."""
    n = len(states[0].alpha)
    undecided, taking_part = np.ones(n, bool), np.zeros(n, bool)
    for state, problem in zip(states, problems, strict=True):
        bar = _NONE * state.level
        for some in pieces(n):
            weighted = state.role[some] > EXCLUDED
            C = problem.C[some] if isinstance(problem.C, np.ndarray) else problem.C
            slack = np.divide(state.alpha[some], C, out=np.zeros(len(weighted)), where=weighted)
            undecided[some] &= weighted & (np.abs(state.gradient[some] - slack) <= bar)
            taking_part[some] |= weighted
    return undecided, taking_part


def _support(states: Sequence[State]) -> np.ndarray:
    """The support vectors of all classes together."""
    some = np.zeros(len(states[0].alpha), bool)
    for state in states:
        some |= state.alpha > 0
    return np.flatnonzero(some)


def _sample(support: np.ndarray) -> np.ndarray:
    """At most half of the support vectors, so that some patterns are left to compare with."""
    count = min(_SAMPLE, max(1, len(support) // 2))
    return support[np.linspace(0, len(support) - 1, count).astype(np.int64)]


def _seen(states: Sequence[State], problems: Sequence[Problem], mask: np.ndarray) -> int:
    """How many patterns of a mask have a kernel value other than 0 with some support vectors."""
    backend = problems[0].backend
    rows = backend.gather(_sample(_support(states)))
    values = backend.matvec(rows, np.ones(len(rows)))
    return int(np.count_nonzero(np.abs(values[mask]) >= _UNSEEN))
