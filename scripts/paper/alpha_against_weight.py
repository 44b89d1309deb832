"""One pattern's weight varied, and what becomes of its coefficient: three C, three patterns."""

from pathlib import Path

import numpy as np

from scripts.paper.report import Section, paragraph, picture
from scripts.paper.style import LOOK, figure, plain, save
from scripts.paper.tables import write_csv
from scripts.paper.task_cache import TaskCache
from scripts.paper.weighted_svm import coefficients

NAME = "alpha-against-weight"
C_VALUES = (1e-3, 1.0, 1e3)
PATTERNS = ("largest", "intermediate", "smallest")
WEIGHTS = np.logspace(-2, 2, 41)


def two_clouds() -> tuple[np.ndarray, np.ndarray]:
    """100 patterns of two features, as many as in the paper; the clouds overlap."""
    random = np.random.default_rng(0)
    y = np.repeat([1, -1], 50)
    return random.normal(size=(100, 2)) + 0.8 * y[:, None], y


def varied(C: float, pattern: str) -> dict[str, list[float]]:
    """The coefficient for every weight of one pattern; the largest weight is brought to 1."""
    x, y = two_clouds()
    i = _pattern(coefficients(x, y, C, np.ones(len(y))), pattern)
    found = []
    for weight in WEIGHTS:
        weights = np.ones(len(y))
        weights[i] = weight
        found.append(float(coefficients(x, y, C, weights / weights.max())[i]))
    return {"weight": WEIGHTS.tolist(), "alpha": found}


def _pattern(alpha: np.ndarray, which: str) -> int:
    """The pattern of the largest, of a middle, or of the smallest coefficient of the plain SVM."""
    order = np.argsort(alpha)
    support = order[alpha[order] > 0]
    return int(
        {"largest": order[-1], "intermediate": support[len(support) // 2], "smallest": order[0]}[
            which
        ]
    )


def run(tasks: TaskCache, out: Path) -> Section:
    """The figure of nine panels."""
    units = {f"{C:g}-{p}": {"C": C, "pattern": p} for C in C_VALUES for p in PATTERNS}
    found = tasks.map(NAME, varied, units)
    write_csv(
        out / f"{NAME}.csv",
        [
            {"C": C, "pattern": pattern, "weight": round(weight, 6), "alpha": alpha}
            for C in C_VALUES
            for pattern in PATTERNS
            for weight, alpha in zip(*found[f"{C:g}-{pattern}"].values(), strict=True)
        ],
    )
    drawn = figure(8, 7)
    axes = drawn.subplots(3, 3, sharex=True)
    for row, C in enumerate(C_VALUES):
        for column, pattern in enumerate(PATTERNS):
            here = axes[row, column]
            curve = found[f"{C:g}-{pattern}"]
            style = LOOK["SVM"] | {"linewidth": 1.6, "markersize": 4, "markevery": 5}
            here.plot(curve["weight"], curve["alpha"], markerfacecolor="white", **style)
            here.axvline(1, color="0.6", linewidth=1, linestyle=":")
            here.set_xscale("log")
            here.set_ylim(bottom=min(0, -0.03 * max(curve["alpha"])))
            plain(here)
            if row == 0:
                here.set_title(f"{pattern} coefficient", fontsize=11)
            if row == 2:
                here.set_xlabel("weight t")
            if column == 0:
                here.set_ylabel(f"C = {C:g}\nalpha")
    html = picture(
        save(drawn, out / f"{NAME}.png"),
        "The coefficient of one pattern against its weight, all other weights 1 (then all divided "
        "by the largest); the dotted line is the plain SVM.",
    )
    html += paragraph(
        "As in the paper: the coefficient grows with the weight, until it saturates. (The paper "
        "does not give its 100 patterns; ours are two overlapping clouds.) Below some weight the "
        "pattern has no coefficient at all: its margin is met by the others' solution."
    )
    return Section(NAME, "A coefficient against its weight", html)
