"""ROC and precision-recall curves of two classes; calibration curves."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bigsvm.files.atomic import atomic_write
from bigsvm.models.calibration import BINS, Reliability
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


def plot_curves(path: Path, curves: Curves, threshold: float, positive: str, base: float) -> None:
    """Plot both curves, and mark the point of the model's threshold.

    Parameters
    ----------
    path : Path
        A PNG file.
    curves : Curves
    threshold : float
        Of the model.
    positive : str
        The class of +1.
    base : float
        Its share of the rows: the precision of choosing at random.
    """
    from matplotlib.figure import Figure

    from bigsvm.models.plots import COLOURS, plain_text

    style: Mapping[str, Any] = {"color": COLOURS[0], "linewidth": 1.6}
    dot: Mapping[str, Any] = {"color": COLOURS[1], "zorder": 4, "clip_on": False}
    figure = Figure(figsize=(8.4, 4.2), layout="constrained")
    roc, recall = figure.subplots(1, 2)
    false_rate, found, precision = curves.at(threshold)
    roc.plot(curves.false_positive_rate, curves.recall, **style)
    roc.plot([0, 1], [0, 1], color="0.7", linestyle=":")
    roc.scatter([false_rate], [found], **dot, label=f"threshold {threshold:.3g}")
    roc.set(xlabel="False positive rate", ylabel="Recall", title=f"ROC: AUC {curves.auc:.4f}")
    recall.plot(curves.recall, curves.precision, **style)
    recall.axhline(base, color="0.7", linestyle=":")
    recall.scatter([found], [precision], **dot)
    title = f"Precision-recall: average precision {curves.average_precision:.4f}"
    recall.set(xlabel="Recall", ylabel="Precision", title=title)
    roc.legend(loc="lower right", frameon=False)
    for axes in (roc, recall):
        axes.set(xlim=(0, 1), ylim=(0, 1.02))
        axes.grid(color="0.9", linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(plain_text(f"Positive: {positive}"), fontsize="medium")
    with atomic_write(path) as temporary:
        figure.savefig(temporary, format="png", dpi=160)


def plot_calibration(path: Path, found: Reliability, of: str) -> None:
    """Plot how often what was said with a probability came true, and how often it was said.

    Parameters
    ----------
    path : Path
        A PNG file.
    found : Reliability
    of : str
        The class that the probabilities are of.
    """
    from matplotlib.figure import Figure

    from bigsvm.models.plots import COLOURS, plain_text

    figure = Figure(figsize=(4.8, 5.6), layout="constrained")
    curve, counts = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    said = [part["probability"] for part in found.curve]
    curve.plot([0, 1], [0, 1], color="0.7", linestyle=":", label="perfect")
    curve.plot(said, [part["share"] for part in found.curve], color=COLOURS[0], marker="o")
    curve.set(xlim=(0, 1), ylim=(0, 1.02), ylabel="Share of the rows that is of it")
    curve.set_title(
        f"Calibration: Brier score {found.brier_score:.4f}, "
        f"error {100 * found.expected_calibration_error:.2f} %",
        fontsize="medium",
    )
    curve.legend(loc="upper left", frameon=False)
    places = [(min(int(p * BINS), BINS - 1) + 0.5) / BINS for p in said]
    counts.bar(places, [part["rows"] for part in found.curve], 0.9 / BINS, color=COLOURS[0])
    counts.set(xlabel=plain_text(f"Probability of {of}"), ylabel="Rows", yscale="log")
    counts.set_ylim(bottom=0.8)
    counts.yaxis.set_minor_formatter("")
    for axes in (curve, counts):
        axes.grid(color="0.9", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    with atomic_write(path) as temporary:
        figure.savefig(temporary, format="png", dpi=160)
