"""One style for all pictures: readable in print, and distinguishable for colour-blind readers."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from bigsvm.files.atomic import atomic_write
from bigsvm.models.plots import COLOURS, LINES, MARKERS

# Each model has its colour, its marker, its line and its hatching in every picture.
LOOK = {
    name: {"color": COLOURS[i], "marker": MARKERS[i], "linestyle": LINES[i]}
    for i, name in enumerate(("SVM", "I-SVM", "F-I-SVM", "I-SVM, all starts"))
}
HATCHES = {"SVM": "////", "I-SVM": "\\\\\\\\", "F-I-SVM": "....", "I-SVM, all starts": "...."}


def figure(width: float, height: float) -> Figure:
    """An empty picture; sizes in inches."""
    return Figure(figsize=(width, height), layout="constrained")


def line(axes: Axes, model: str, x: Any, y: Any, **more: Any) -> None:
    """One model's line."""
    style = {
        **LOOK[model], "label": model, "linewidth": 1.6, "markersize": 5,
        "markerfacecolor": "white", "markeredgewidth": 1.2, "zorder": 3,
    }  # fmt: skip
    axes.plot(x, y, **style | more)


def band(axes: Axes, model: str, x: Any, low: Any, high: Any) -> None:
    """The range behind a model's line: a light tint, and a hatching for print."""
    colour = LOOK[model]["color"]
    axes.fill_between(x, low, high, color=colour, alpha=0.13, linewidth=0, zorder=1)
    axes.fill_between(
        x, low, high, facecolor="none", edgecolor=colour, alpha=0.35, hatch=HATCHES[model],
        linewidth=0.4, zorder=1,
    )  # fmt: skip


def plain(axes: Axes) -> None:
    """A light grid, and no frame where there is nothing to read off."""
    axes.grid(color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def counts(axes: Axes) -> None:
    """Thousands on the vertical axis as people write them."""
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def decades_of_C(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.set_xticks(10.0 ** np.arange(-5, 6, 2))
    axes.set_xlabel("C")


def legend(figure: Figure, axes: Axes) -> None:
    """Above the picture, one entry for each line of `axes`."""
    handles, _ = axes.get_legend_handles_labels()
    figure.legend(
        handles=handles, loc="outside upper center", ncols=len(handles), frameon=False,
        handlelength=4,
    )  # fmt: skip


def save(figure: Figure, path: Path) -> Path:
    """Write the picture as PNG, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as temporary:
        figure.savefig(temporary, format="png", dpi=150)
    return path
