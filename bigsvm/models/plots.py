"""The plots of `evaluate`: a training's progress, ROC and precision-recall curves, calibration."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from textwrap import wrap
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from bigsvm.files.atomic import atomic_write
from bigsvm.models.calibration import BINS, Reliability
from bigsvm.models.evaluation import Row
from bigsvm.models.scores import Curves

# The colours of Okabe and Ito, for colour-blind readers (without yellow, which is too faint on
# white). The lengths of the three lists have no common divisor: 280 combinations.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1)), (0, (6, 1.5, 1.5, 1.5)), (0, (9, 2)))
MARKED_POINTS = 20
LEAST_SPAN = 1.0  # percentage points of accuracy: less would magnify noise


@dataclass(frozen=True)
class Evolution:
    """The snapshots of a run.

    Attributes
    ----------
    rows : sequence of Row
    seconds : sequence of float, or None
        The training time of each, if known.
    """

    rows: Sequence[Row]
    seconds: Sequence[float] | None = None


def plot_evolution(path: Path, runs: Mapping[str, Evolution], title: str | None = None) -> None:
    """Plot test accuracy, AUC and number of support vectors, a line per run.

    Over the iterations, and over the training time if it is known for all runs.
    """
    timed = all(run.seconds is not None for run in runs.values())
    figure = Figure(figsize=(10.6 if timed else 6.4, 7.4), layout="constrained")
    panels = figure.subplots(3, 2 if timed else 1, sharex="col", sharey="row", squeeze=False)
    for place, (label, run) in enumerate(runs.items()):
        style: dict[str, Any] = {
            "label": plain_text(label),
            "color": COLOURS[place % len(COLOURS)],
            "marker": MARKERS[place % len(MARKERS)],
            "linestyle": LINES[place % len(LINES)],
            # Runs mark different points, so that coinciding lines stay visible.
            "markevery": _marked_points(len(run.rows), place, len(runs)),
            "markersize": 5,
            "markerfacecolor": "white",
            "markeredgewidth": 1.2,
            "linewidth": 1.6,
            "clip_on": False,
            "zorder": 3,
        }
        for column, x in enumerate([[row.iteration for row in run.rows], run.seconds][: 1 + timed]):
            panels[0, column].plot(x, [100 * row.accuracy for row in run.rows], **style)
            panels[1, column].plot(x, [100 * row.auc for row in run.rows], **style)
            panels[2, column].plot(x, [row.n_support for row in run.rows], **style)
    every = [row for run in runs.values() for row in run.rows]
    panels[0, 0].set_ylabel("Test accuracy (%)")
    panels[0, 0].set_ylim(*accuracy_range([100 * row.accuracy for row in every]))
    panels[1, 0].set_ylabel("Test AUC (%)")
    areas = [100 * row.auc for row in every if not isnan(row.auc)]
    panels[1, 0].set_ylim(*accuracy_range(areas or [0.0, 100.0]))
    panels[2, 0].set_ylabel("Support vectors")
    panels[2, 0].set_ylim(0, 1.06 * max(1, *(row.n_support for row in every)))
    panels[2, 0].set_xlabel("Iteration")
    panels[2, 0].set_xlim(0, 1.02 * max(1, *(row.iteration for row in every)))
    if timed:
        longest = max(max(run.seconds or [0.0]) for run in runs.values())
        panels[2, 1].set_xlabel("Training time (s)")
        panels[2, 1].set_xlim(0, 1.02 * longest if longest > 0 else 1.0)
    for axes in panels.flat:
        axes.grid(color="0.9", linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
    for axis in (panels[2, 0].xaxis, panels[2, 0].yaxis):
        axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axis.get_major_locator().set_params(integer=True, nbins=5)  # room for 10,000,000
    columns = max(1, min(len(runs), 4, 72 // (max(map(len, runs)) + 6)))
    if title is not None:
        figure.suptitle(plain_text("\n".join(wrap(title, 110 if timed else 70))), fontsize=10)
    if title is None or len(runs) > 1:
        figure.legend(
            handles=panels[0, 0].get_lines(), loc="outside upper center", ncols=columns,
            frameon=False, handlelength=4,
        )  # fmt: skip
    figure.align_ylabels()
    save_figure(path, figure)


def save_figure(path: Path, figure: Figure) -> None:
    """Write a figure as PNG, atomically."""
    with atomic_write(path) as temporary:
        figure.savefig(temporary, format="png", dpi=160)


def accuracy_range(percentages: Sequence[float]) -> tuple[float, float]:
    """Axis limits for percentages, with a margin, within 0 to 100."""
    low, high = min(percentages), max(percentages)
    margin = max(0.06 * (high - low), (LEAST_SPAN - (high - low)) / 2)
    return max(0.0, low - margin), min(100.0, high + margin)


def _marked_points(points: int, place: int, runs: int) -> tuple[int, int]:
    """The first and the step of the points that get a marker."""
    step = max(1, -(-points // MARKED_POINTS))
    return place * step // runs, step


def plain_text(label: str) -> str:
    """Escape a label: matplotlib reads $ as a formula and hides labels that begin with _."""
    readable = label.encode(
        errors="backslashreplace"
    ).decode()  # folder names may not be valid text
    escaped = readable.replace("$", r"\$")
    return f" {escaped}" if label.startswith("_") else escaped


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
    save_figure(path, figure)


def plot_calibration(path: Path, found: Reliability, of: str) -> None:
    """Plot the calibration curve above a histogram of the predicted probabilities.

    Parameters
    ----------
    path : Path
        A PNG file.
    found : Reliability
    of : str
        What the probabilities are of: a class, or the most probable class.
    """
    figure = Figure(figsize=(4.8, 5.6), layout="constrained")
    curve, counts = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    predicted = [part["probability"] for part in found.curve]
    curve.plot([0, 1], [0, 1], color="0.7", linestyle=":", label="perfect")
    curve.plot(
        predicted,
        [part["share"] for part in found.curve],
        color=COLOURS[0],
        marker="o",
        clip_on=False,
    )
    curve.set(xlim=(0, 1), ylim=(0, 1.02), ylabel="Share of these rows in the class")
    curve.set_title(
        f"Calibration: Brier score {found.brier_score:.4f}, "
        f"error {100 * found.expected_calibration_error:.2f} %",
        fontsize="medium",
    )
    curve.legend(loc="upper left", frameon=False)
    places = [(min(int(p * BINS), BINS - 1) + 0.5) / BINS for p in predicted]
    counts.bar(places, [part["rows"] for part in found.curve], 0.9 / BINS, color=COLOURS[0])
    counts.set(xlabel=plain_text(f"Probability of {of}"), ylabel="Rows", yscale="log")
    counts.set_ylim(bottom=0.8)
    counts.yaxis.set_minor_formatter("")
    for axes in (curve, counts):
        axes.grid(color="0.9", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    save_figure(path, figure)
