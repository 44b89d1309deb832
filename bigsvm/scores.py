"""How well decision values fit the true signs."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Scores:
    """All as fractions; a score that the rows cannot tell is nan."""

    accuracy: float
    balanced_accuracy: float
    f1: float
    auc: float


def scores_of(signs: np.ndarray, decisions: np.ndarray) -> Scores:
    """The scores of decision values against signs in {-1, +1}; a decision >= 0 means +1."""
    positive, chosen = signs > 0, decisions >= 0
    hits = int(np.count_nonzero(positive & chosen))
    misses = int(np.count_nonzero(positive)) - hits
    false_alarms = int(np.count_nonzero(chosen)) - hits
    rejections = len(signs) - hits - misses - false_alarms
    found = [
        _ratio(right, right + wrong)
        for right, wrong in ((hits, misses), (rejections, false_alarms))
        if right + wrong
    ]
    relevant = 2 * hits + misses + false_alarms
    return Scores(
        accuracy=_ratio(hits + rejections, len(signs)),
        balanced_accuracy=_ratio(sum(found), len(found)),
        f1=2 * hits / relevant if relevant else 0.0,
        auc=auc(signs, decisions),
    )


def auc(signs: np.ndarray, decisions: np.ndarray) -> float:
    """The area under the ROC curve, exact: how often a +1 stands above a -1, ties counting half."""
    above = np.sort(decisions[signs > 0])
    below = np.sort(decisions[signs < 0])
    # Twice the pairs in order, in whole numbers: smaller ones count twice, equal ones once.
    pairs = int(np.searchsorted(below, above, "left").sum())
    pairs += int(np.searchsorted(below, above, "right").sum())
    return _ratio(pairs, 2 * len(above) * len(below))


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else float("nan")
