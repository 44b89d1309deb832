"""Models that are worth little although nothing went wrong: what to tell the user."""

from collections.abc import Sequence

import numpy as np

from bigsvm.backends import Backend
from bigsvm.backends.products import GatheredRows
from bigsvm.solvers.problem import Problem
from bigsvm.solvers.state import EXCLUDED, State, pieces

# A decision value below this share of the margin is rounding.
_NONE = 1e-9
# Decision values that differ by no more than this share of themselves are the same.
_SAME = 1e-6
# Kernel values below this count as 0.
_UNSEEN = 1e-30
# One pattern in this many is nothing to worry about.
_FEW = 100
# Support vectors that stand for all where kernel values are looked at.
_SAMPLE = 32
_TOO_NARROW = "the kernel is too narrow; raise its sigma (lower gamma), or scale the features"
_WIDE = (
    "lower its sigma (raise gamma), scale the features, or add features that tell the classes apart"
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
    undecided, taking_part, constant = _decisions(states, problems)
    count, n = np.count_nonzero(undecided), np.count_nonzero(taking_part)
    if count > n // _FEW:
        told = f"the decision value is 0 for {count:,} of {n:,} training patterns: "
        if 2 * np.count_nonzero(_out_of_reach(states, problems[0].backend, undecided)) > count:
            # Of a linear kernel, too: of rows of zeros.
            return told + (
                "their kernel values with all support vectors are 0, or as good as; unless these "
                f"are rows of zeros, {_TOO_NARROW}"
            )
        if not converged:
            return told + "the training ended too early to decide about them; let it continue"
        return told + f"as the kernel sees them, rows of both classes are the same there; {_WIDE}"
    if constant:
        return (
            "the decision value is the same for all training patterns, which the kernel cannot "
            f"tell apart; {_WIDE}"
        )
    support = _support(states)
    if len(support) >= n - n // _FEW:
        sample, others = _sample(support), taking_part.copy()
        others[sample] = False
        if _seen(problems[0].backend, sample, others) <= np.count_nonzero(others) // _FEW:
            return (
                f"{len(support):,} of {n:,} training patterns are support vectors, and in a sample "
                f"of them the kernel values with others are 0: {_TOO_NARROW}"
            )
    return None


def _tolerance_above_margin(states: Sequence[State], problems: Sequence[Problem]) -> str | None:
    for state, problem in zip(states, problems, strict=True):
        gap, _ = problem.stop_test(state, state.gradient)
        if problem.stop_rule.absolute and gap >= state.quad_form:
            return (
                f"the gap is as large as the margin ({gap:.1e}, {state.quad_form:.1e}), so the "
                "model is not worth having, though by the absolute tolerance it has converged; use "
                "the relative tolerance"
            )
    return None


def _decisions(
    states: Sequence[State], problems: Sequence[Problem]
) -> tuple[np.ndarray, np.ndarray, bool]:
    """What the model says of the training patterns.

    Returns
    -------
    undecided : (n,) bool
        All decision values of the pattern are 0 but for rounding.
    taking_part : (n,) bool
        Patterns with a weight.
    constant : bool
        Every class has one decision value for all patterns.
    """
    n = len(states[0].alpha)
    undecided, taking_part, constant = np.ones(n, bool), np.zeros(n, bool), True
    for state, problem in zip(states, problems, strict=True):
        bar = _NONE * state.quad_form
        low, high = np.inf, -np.inf
        for some in pieces(n):
            weighted = state.role[some] > EXCLUDED
            C = problem.C[some] if isinstance(problem.C, np.ndarray) else problem.C
            slack = np.divide(state.alpha[some], C, out=np.zeros(len(weighted)), where=weighted)
            signed = state.gradient[some] - slack  # sign times decision value
            undecided[some] &= weighted & (np.abs(signed) <= bar)
            taking_part[some] |= weighted
            decided = signed[weighted] / problem.signs[some][weighted]
            low, high = decided.min(initial=low), decided.max(initial=high)
        constant &= high - low <= _SAME * max(-low, high)
    return undecided, taking_part, bool(constant)


def _support(states: Sequence[State]) -> np.ndarray:
    """The support vectors of all classes together."""
    some = np.zeros(len(states[0].alpha), bool)
    for state in states:
        some |= state.alpha > 0
    return np.flatnonzero(some)


def _out_of_reach(states: Sequence[State], backend: Backend, undecided: np.ndarray) -> np.ndarray:
    """The undecided patterns that no support vector says anything about, (n,) bool.

    With all signs alike the decision value is still 0: nothing cancels.
    """
    support = _support(states)
    weight = np.sum([state.alpha[support] / state.quad_form for state in states], axis=0)
    rows = GatheredRows(backend, support, backend.rows_at_once)
    return undecided & (np.abs(backend.matvec(rows, weight)) <= _NONE)


def _sample(support: np.ndarray) -> np.ndarray:
    """At most half of the support vectors, so that some patterns are left to compare with."""
    count = min(_SAMPLE, max(1, len(support) // 2))
    return support[np.linspace(0, len(support) - 1, count).astype(np.int64)]


def _seen(backend: Backend, index: np.ndarray, mask: np.ndarray) -> int:
    """How many patterns of a mask have a kernel value other than 0 with one of `index`."""
    rows = GatheredRows(backend, index, backend.rows_at_once)
    values = backend.matvec(rows, np.ones(len(index)))
    return int(np.count_nonzero(np.abs(values[mask]) >= _UNSEEN))
