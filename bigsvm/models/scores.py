"""Classification scores (accuracy, balanced accuracy, F1, AUC), ROC and precision-recall curves."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bigsvm.files.atomic import write_csv

POINTS = 1000  # the most points of a curve that are saved
CURVE_COLUMNS = ("threshold", "false_positive_rate", "recall", "precision")


@dataclass(frozen=True)
class Scores:
    """Scores as fractions; nan where the rows do not determine one.

    For more than two classes, F1 is the mean over the classes that occur or were predicted, and AUC
    the mean over those with rows both inside and outside of the class.
    """

    accuracy: float
    balanced_accuracy: float
    f1: float
    auc: float


def scores_of(signs: np.ndarray, decisions: np.ndarray, threshold: float = 0.0) -> Scores:
    """The scores of decision values for signs in {-1, +1}; at least the threshold means +1."""
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
    """The scores of decision values (rows, classes), of which the largest wins; and the confusion.

    The confusion matrix has true classes in rows and predicted classes in columns.
    """
    count = decisions.shape[1]
    pairs = codes.astype(np.int64) * count + decisions.argmax(axis=1)
    confusion = np.bincount(pairs, minlength=count * count).reshape(count, count)
    areas = [auc(np.where(codes == k, 1, -1), decisions[:, k]) for k in range(count)]
    defined = [area for area in areas if not np.isnan(area)]
    area = _ratio(sum(defined), len(defined))
    return replace(scores_from_confusion(confusion), auc=area), confusion


def scores_from_confusion(confusion: np.ndarray) -> Scores:
    """The scores of a confusion matrix, which does not determine the AUC: it is nan."""
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
    """The exact area under the ROC curve: P(decision of a +1 > that of a -1), ties count half."""
    above = np.sort(decisions[signs > 0])
    below = np.sort(decisions[signs < 0])
    # Twice the number of ordered pairs, in integers: ties count once, others twice.
    pairs = int(np.searchsorted(below, above, "left").sum())
    pairs += int(np.searchsorted(below, above, "right").sum())
    return _ratio(pairs, 2 * len(above) * len(below))


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else float("nan")


@dataclass(frozen=True)
class Curves:
    """Points of both curves, from the highest threshold (no positives) to the lowest.

    Attributes
    ----------
    threshold, false_positive_rate, recall, precision : (points,) float64
        At the first point, without positives, the precision is 1 and the threshold infinite.
    auc, average_precision : float
        Of all rows, not only of the saved points; nan if a class has no rows.
    """

    threshold: np.ndarray
    false_positive_rate: np.ndarray
    recall: np.ndarray
    precision: np.ndarray
    auc: float
    average_precision: float

    def at(self, threshold: float) -> tuple[float, float, float]:
        """False positive rate, recall and precision at a threshold (the nearest point)."""
        place = int(np.searchsorted(-self.threshold, -threshold, "right")) - 1
        found = (self.false_positive_rate, self.recall, self.precision)
        return tuple(float(values[max(0, place)]) for values in found)  # type: ignore[return-value]


def curves_of(signs: np.ndarray, decisions: np.ndarray) -> Curves:
    """The curves of decision values for signs in {-1, +1}.

    Parameters
    ----------
    signs : (n,) integers
    decisions : (n,) float64

    Returns
    -------
    Curves
    """
    values, false_rate, recall, precision = _points(signs, decisions)
    kept = np.unique(np.linspace(0, len(values) - 1, POINTS - 1).round().astype(int))
    return Curves(
        np.concatenate([[np.inf], values[kept]]),
        np.concatenate([[0.0], false_rate[kept]]),
        np.concatenate([[0.0], recall[kept]]),
        np.concatenate([[1.0], precision[kept]]),
        auc(signs, decisions),
        _average(recall, precision),
    )


def average_precision(signs: np.ndarray, decisions: np.ndarray) -> float:
    """The mean precision over the rows of +1, each at its own decision value."""
    _, _, recall, precision = _points(signs, decisions)
    return _average(recall, precision)


def _average(recall: np.ndarray, precision: np.ndarray) -> float:
    # Rounding may bring the sum slightly above 1.
    return float(np.minimum(1.0, np.sum(np.diff(recall, prepend=0.0) * precision)))


def _points(
    signs: np.ndarray, decisions: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Threshold, false positive rate, recall and precision, at every decision value."""
    order = np.argsort(-decisions, kind="stable")
    values, hits = decisions[order], np.cumsum(signs[order] > 0)
    ends = np.flatnonzero(np.append(np.diff(values) != 0, True))  # equal values are one threshold
    true, chosen = hits[ends], ends + 1
    with np.errstate(invalid="ignore"):
        recall = true / float(hits[-1])
        false_rate = (chosen - true) / float(len(signs) - hits[-1])
    return values[ends], false_rate, recall, true / chosen


def write_curves(path: Path, curves: Curves) -> None:
    """Write curves.csv, a line per point."""
    columns = (getattr(curves, name).tolist() for name in CURVE_COLUMNS)
    write_csv(path, [CURVE_COLUMNS, *zip(*columns, strict=True)])
