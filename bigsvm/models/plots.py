"""The plot of a training's progress."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bigsvm.files.atomic import atomic_write
from bigsvm.models.evaluation import Row

# The colours of Okabe and Ito, for colour-blind readers (without yellow, which is too faint on
# white). The lengths of the three lists have no common divisor: 280 combinations.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1)), (0, (6, 1.5, 1.5, 1.5)), (0, (9, 2)))
MARKED_POINTS = 20
LEAST_SPAN = 1.0  # percentage points of accuracy: less would magnify noise


def plot_evolution(path: Path, runs: Mapping[str, Sequence[Row]]) -> None:
    """Plot test accuracy and number of support vectors over the iterations, a line per run."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import StrMethodFormatter

    figure = Figure(figsize=(7, 5.6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    for place, (label, rows) in enumerate(runs.items()):
        iterations = [row.iteration for row in rows]
        style: dict[str, Any] = {
            "label": plain_text(label),
            "color": COLOURS[place % len(COLOURS)],
            "marker": MARKERS[place % len(MARKERS)],
            "linestyle": LINES[place % len(LINES)],
            # Runs mark different points, so that coinciding lines stay visible.
            "markevery": _marked(len(rows), place, len(runs)),
            "markersize": 5,
            "markerfacecolor": "white",
            "markeredgewidth": 1.2,
            "linewidth": 1.6,
            "clip_on": False,
            "zorder": 3,
        }
        above.plot(iterations, [100 * row.accuracy for row in rows], **style)
        below.plot(iterations, [row.n_support for row in rows], **style)
    above.set_ylabel("Test accuracy (%)")
    above.set_ylim(*accuracy_range([100 * row.accuracy for rows in runs.values() for row in rows]))
    below.set_ylabel("Support vectors")
    most = max(row.n_support for rows in runs.values() for row in rows)
    below.set_ylim(0, 1.06 * max(1, most))
    below.set_xlabel("Iteration")
    last = max(row.iteration for rows in runs.values() for row in rows)
    below.set_xlim(0, 1.02 * max(1, last))
    for axes in (above, below):
        axes.grid(color="0.9", linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
    for axis in (below.xaxis, below.yaxis):
        axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axis.get_major_locator().set_params(integer=True)
    columns = max(1, min(len(runs), 4, 72 // (max(map(len, runs)) + 6)))
    figure.legend(
        handles=above.get_lines(), loc="outside upper center", ncols=columns, frameon=False,
        handlelength=4,
    )  # fmt: skip
    figure.align_ylabels()
    with atomic_write(path) as temporary:
        figure.savefig(temporary, format="png", dpi=160)


def accuracy_range(percentages: Sequence[float]) -> tuple[float, float]:
    """Axis limits for percentages, with a margin, within 0 to 100."""
    low, high = min(percentages), max(percentages)
    margin = max(0.06 * (high - low), (LEAST_SPAN - (high - low)) / 2)
    return max(0.0, low - margin), min(100.0, high + margin)


def _marked(points: int, place: int, runs: int) -> tuple[int, int]:
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
