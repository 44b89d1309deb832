"""How well decision values fit the true classes."""

from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True)
class Scores:
    """All as fractions; a score that the rows cannot tell is nan.

    Of more than two classes: the F1 is the mean over those that occur or were chosen, the AUC the
    mean over those that can be told from the rest.
    """

    accuracy: float
    balanced_accuracy: float
    f1: float
    auc: float


def scores_of(signs: np.ndarray, decisions: np.ndarray, threshold: float = 0.0) -> Scores:
    """The scores of decisions against signs in {-1, +1}; one from the threshold on means +1."""
    positive, chosen = signs > 0, decisions >= threshold
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


def confusion_of(signs: np.ndarray, decisions: np.ndarray, threshold: float = 0.0) -> np.ndarray:
    """The confusion (2, 2) of two classes; see `scores_of`."""
    pairs = 2 * (signs > 0).astype(np.int64) + (decisions >= threshold)
    return np.bincount(pairs, minlength=4).reshape(2, 2)


def scores_of_classes(codes: np.ndarray, decisions: np.ndarray) -> tuple[Scores, np.ndarray]:
    """The scores of decision values (rows, classes), the largest being chosen, and the confusion.

    The confusion is (classes, classes): the rows of each class, by the class that was chosen.
    """
    count = decisions.shape[1]
    pairs = codes.astype(np.int64) * count + decisions.argmax(axis=1)
    confusion = np.bincount(pairs, minlength=count * count).reshape(count, count)
    areas = [auc(np.where(codes == k, 1, -1), decisions[:, k]) for k in range(count)]
    told = [area for area in areas if not np.isnan(area)]
    area = _ratio(sum(told), len(told))
    return replace(scores_from_confusion(confusion), auc=area), confusion


def scores_from_confusion(confusion: np.ndarray) -> Scores:
    """The scores of a confusion (classes, classes); the AUC, which it cannot tell, is nan."""
    hits, actual, chosen = confusion.diagonal(), confusion.sum(axis=1), confusion.sum(axis=0)
    recalls = hits[actual > 0] / actual[actual > 0]
    in_play = actual + chosen > 0
    f1 = 2 * hits[in_play] / (actual + chosen)[in_play]
    return Scores(
        accuracy=_ratio(int(hits.sum()), int(actual.sum())),
        balanced_accuracy=_ratio(float(recalls.sum()), len(recalls)),
        f1=_ratio(float(f1.sum()), len(f1)),
        auc=float("nan"),
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
