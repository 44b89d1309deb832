"""The threshold of a decision, fitted to the decision values of the training rows.

Without an intercept, the decision values of an early model may all be on one side of 0, even if
they rank the rows well. The gradient holds the decision value of every training row, so that
fitting a threshold costs a sort, and no kernel value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

from bigsvm.solvers.problem import Problem
from bigsvm.solvers.state import UNSEEN, State, pieces

Rule = Literal["zero", "balanced", "accuracy"]


def threshold_at(state: State, problem: Problem, rule: Rule) -> float:
    """The threshold of the model at `state`, by the training rows whose derivatives are known.

    Inside a subproblem, the decision values of the rows outside of it are those of the last pass
    over the data.
    """
    if rule == "zero":
        return 0.0
    return fit_threshold(*decision_values(state, problem), rule)


def decision_values(state: State, problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """The decision values of the training rows of +1 and of -1: f_i = (g_i - alpha_i / C_i) / s_i.

    s_i is the sign y_i, divided by the weight of the row if rows are weighted.
    """
    found: tuple[list[np.ndarray], list[np.ndarray]] = [], []
    for some in pieces(len(state.alpha)):
        signs = problem.signs[some]
        C = problem.C[some] if isinstance(problem.C, np.ndarray) else problem.C
        known = (state.role[some] != UNSEEN) & (signs != 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            values = (state.gradient[some] - state.alpha[some] / C) / signs
        for place, side in enumerate((signs > 0, signs < 0)):
            found[place].append(values[known & side])
    return np.concatenate(found[0]), np.concatenate(found[1])


def fit_threshold(above: np.ndarray, below: np.ndarray, rule: Rule) -> float:
    """The threshold t for which f >= t is most often correct; of several, the one nearest to 0.

    Parameters
    ----------
    above, below : arrays
        The decision values of rows of +1 and of -1; they are sorted in place.
    rule : {"accuracy", "balanced"}
        Count every row alike, or every class.

    Returns
    -------
    float
        0 if one class has no rows.
    """
    if not len(above) or not len(below):
        return 0.0
    above.sort()
    below.sort()
    # Integers, so that equal scores compare equal whatever the order of summation.
    weights = (1, 1) if rule == "accuracy" else (len(below), len(above))
    best, threshold = -1, 0.0
    for score, lower, upper in _candidates(above, below, weights):
        # Any t with lower < t <= upper gives this score.
        here = 0.0 if lower < 0 <= upper else _between(lower, upper)
        if score > best or (score == best and abs(here) < abs(threshold)):
            best, threshold = score, here
    return threshold


def _between(lower: float, upper: float) -> float:
    if np.isinf(upper):
        return float(np.nextafter(lower, np.inf))
    return upper if np.isinf(lower) else lower + (upper - lower) / 2


def _candidates(
    above: np.ndarray, below: np.ndarray, weights: tuple[int, int]
) -> Iterator[tuple[int, float, float]]:
    """Yield (score, lower, upper) of intervals of thresholds; those of a best score are among them.

    A best interval ends at the lowest of some values of +1, or above all values.
    """
    for some in pieces(len(above)):
        upper = above[some]
        place = np.searchsorted(below, upper, "left")  # values of -1 that are below
        first = np.searchsorted(above, upper, "left")
        scores = weights[0] * (len(above) - first) + weights[1] * place
        for k in np.flatnonzero(scores == scores.max()):
            lower = max(
                below[place[k] - 1] if place[k] else -np.inf,
                above[first[k] - 1] if first[k] else -np.inf,
            )
            yield int(scores[k]), float(lower), float(upper[k])
    yield weights[1] * len(below), float(max(above[-1], below[-1])), np.inf
