"""The heat map of a tuning: the mean score over C and sigma."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from bigsvm.models.plots import save_figure
from bigsvm.tuning.table import Point

# Cells further than this below the best have the darkest colour, to show differences near the top.
SPAN = 20.0  # percentage points
LEAST_SPAN = 0.1  # of the colours, also where all scores are the same
MOST_LABELS = 25


def plot_heat_map(path: Path, points: Sequence[Point], best: Point, metric: str) -> None:
    """Plot the points of one algorithm, with a frame around the best."""
    Cs = sorted({point.C for point in points})
    sigmas = sorted({point.sigma or 0.0 for point in points})
    scores = np.full((len(sigmas), len(Cs)), np.nan)
    for point in points:
        place = sigmas.index(point.sigma or 0.0), Cs.index(point.C)
        scores[place] = 100 * point.mean(metric)
    rows, columns = scores.shape
    figure = Figure(
        figsize=(min(14.0, 2.8 + 0.58 * columns), min(10.0, max(2.8, 2.0 + 0.4 * rows))),
        layout="constrained",
    )
    axes = figure.subplots()
    top = scores.max()
    low = min(max(scores.min(), top - SPAN), top - LEAST_SPAN)
    # Cividis is also ordered by lightness, for colour-blind readers and black-and-white print.
    image = axes.imshow(scores, cmap="cividis", origin="lower", aspect="auto", vmin=low, vmax=top)
    if rows <= MOST_LABELS and columns <= MOST_LABELS:
        middle = (low + top) / 2
        for (row, column), score in np.ndenumerate(scores):
            colour = "black" if score > middle else "white"
            axes.text(
                column, row, f"{score:.1f}", ha="center", va="center", fontsize=7.5, color=colour
            )
    corner = Cs.index(best.C) - 0.5, sigmas.index(best.sigma or 0.0) - 0.5
    axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor="#D55E00", linewidth=2.5))
    _label(axes, "x", Cs)
    axes.set_xlabel("C")
    if best.sigma is None:
        axes.set_yticks([])
    else:
        _label(axes, "y", sigmas)
        axes.set_ylabel("sigma")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    name = {"auc": "AUC", "f1": "F1"}.get(metric, metric.replace("_", " "))
    at = "" if best.sigma is None else f", sigma = {best.sigma:g}"
    folds = len(best.values["accuracy"])
    title = (
        f"{best.algorithm}: best {name} {100 * best.mean(metric):.2f} % (mean of {folds} folds) at "
        f"C = {best.C:g}{at}"
    )
    # The figure of a narrow grid is too narrow for a long line.
    figure.suptitle("\n".join(wrap(title, int(11 * figure.get_figwidth()))), fontsize=10)
    figure.colorbar(
        image,
        label=f"{name[0].upper()}{name[1:]} (%)",
        extend="min" if scores.min() < low else "neither",
    )
    save_figure(path, figure)


def _label(axes, axis: str, values: Sequence[float]) -> None:  # type: ignore[no-untyped-def]
    """Label the cells of an axis, at most MOST_LABELS of them."""
    step = -(-len(values) // MOST_LABELS)
    places = range(0, len(values), step)
    labels = [f"{values[place]:g}" for place in places]
    getattr(axes, f"set_{axis}ticks")(places, labels, fontsize=8)
