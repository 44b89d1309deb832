"""Three patterns: the weighted simplex, and where on it the solution lies."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Polygon

from bigsvm.models.plots import COLOURS
from scripts.paper.report import Section, paragraph, picture
from scripts.paper.style import figure, save
from scripts.paper.tables import write_csv
from scripts.paper.task_cache import TaskCache
from scripts.paper.weighted_svm import coefficients

NAME = "weighted-simplex"
X = np.array([[1.0, 0.4], [0.3, 1.0], [-0.5, 0.6]])
Y = np.array([1, 1, -1])
C = 1.0
DECADES = (1e-2, 1e-1, 1e0, 1e1, 1e2)
IN_SPACE = (4.0, 2.0, 1.0, 0.5, 0.0)
LIMIT = 1e-6  # stands for a weight of 0, where the solver would leave the pattern out
# The axes as in the paper: a_1 upwards, a_2 to the lower left, a_3 to the lower right.
AXES = np.array([[0.0, 1.0], [-np.sqrt(3) / 2, -0.5], [np.sqrt(3) / 2, -0.5]])
REACH = 2.6


def solved(weights: list[float]) -> list[float]:
    """The solution for three weights."""
    given = np.array(weights)
    return coefficients(X, Y, C, np.where(given > 0, given, LIMIT)).tolist()


def run(tasks: TaskCache, out: Path) -> Section:
    """Three rows of triangles, one weight varied in each, and one row in space."""
    varied = [
        [[w if i == which else 1.0 for i in range(3)] for w in DECADES] for which in (2, 1, 0)
    ]
    varied.append([[weight, 1.0, 1.0] for weight in IN_SPACE])
    names = [[" ".join(f"{w:g}" for w in weights) for weights in row] for row in varied]
    units = {
        name: {"weights": weights}
        for row, of_row in zip(names, varied, strict=True)
        for name, weights in zip(row, of_row, strict=True)
    }
    found = tasks.map(NAME, solved, units)
    write_csv(
        out / f"{NAME}.csv",
        [
            {f"t{i + 1}": w for i, w in enumerate(unit["weights"])}
            | {f"a{i + 1}": round(a, 9) for i, a in enumerate(found[name])}
            for name, unit in units.items()
        ],
    )
    drawn = figure(9, 7.4)
    axes = drawn.subplots(4, 5)
    for row in range(4):
        for column in range(5):
            weights, solution = np.array(varied[row][column]), np.array(found[names[row][column]])
            draw = _triangle if row < 3 else _in_space
            draw(axes[row, column], weights, solution)
    html = picture(
        save(drawn, out / f"{NAME}.png"),
        "The solution (dot) of a problem of three patterns for different weights t. Rows 1 to 3: "
        "the weighted simplex as the triangle of its corners e_i / t_i, in coordinates t_i a_i. "
        "Row 4: the same in space, where a smaller t_1 moves the first corner away, to infinity.",
    )
    html += paragraph(
        "As in the paper: a larger weight pushes the solution towards its pattern. (The paper does "
        "not give its three patterns; these are ours.)"
    )
    return Section(NAME, "The weighted simplex of three patterns", html)


def _triangle(axes: Axes, weights: np.ndarray, solution: np.ndarray) -> None:
    axes.add_patch(Polygon(AXES, facecolor="#e8eef4", edgecolor="0.3", linewidth=1))
    for i, corner in enumerate(AXES):
        axes.annotate(
            f"$a_{i + 1}$", 1.22 * corner, ha="center", va="center", fontsize=9, color="0.2"
        )
    axes.plot(*((weights * solution) @ AXES), "o", color=COLOURS[1], markersize=6, zorder=3)
    _bare(axes, weights, 1.4)


def _in_space(axes: Axes, weights: np.ndarray, solution: np.ndarray) -> None:
    for i, direction in enumerate(AXES):
        end = direction * (REACH if i == 0 else 1.5)
        axes.annotate("", end, (0, 0), arrowprops={"arrowstyle": "->", "color": "0.6"})
        axes.annotate(f"$a_{i + 1}$", end * (1.1 if i == 0 else 1.22), fontsize=9, color="0.2",
                      ha="center", va="center")  # fmt: skip
    if weights[0] > 0:
        corners = AXES / weights[:, None]
    else:  # no corner: a strip without end
        up = AXES[0] * (REACH - 0.3)
        corners = np.array([AXES[1], AXES[1] + up, AXES[2] + up, AXES[2]])
    axes.add_patch(Polygon(corners, facecolor="#e8eef4", edgecolor="0.3", linewidth=1, alpha=0.8))
    axes.plot(*(solution @ AXES), "o", color=COLOURS[1], markersize=6, zorder=3)
    _bare(axes, weights, REACH + 0.4)


def _bare(axes: Axes, weights: np.ndarray, top: float) -> None:
    axes.set_title("(" + ", ".join(f"{weight:g}" for weight in weights) + ")", fontsize=9)
    axes.set_xlim(-1.6, 1.6)
    axes.set_ylim(-1.2, top)
    axes.set_aspect("equal")
    axes.set_axis_off()
