"""ROC and precision-recall curves of two classes."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bigsvm.files.atomic import atomic_write
from bigsvm.models.scores import auc

POINTS = 1000  # the most points of a curve that are saved
COLUMNS = ("threshold", "false_positive_rate", "recall", "precision")


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
    with atomic_write(path) as temporary, temporary.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        columns = (getattr(curves, name).tolist() for name in COLUMNS)
        writer.writerows(zip(*columns, strict=True))
