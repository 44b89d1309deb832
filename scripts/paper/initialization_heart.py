"""heart, linear kernel: accuracy, support vectors and iterations over C, from every start."""

from pathlib import Path
from typing import Any

import numpy as np

from bigsvm.config import normalized_C
from bigsvm.solvers.precomputed import Limits, kernel_matrix, solve
from bigsvm.tuning.cross_validation import stratified_folds
from scripts.paper.initialization import starts
from scripts.paper.partitions import partition
from scripts.paper.published import METRICS
from scripts.paper.report import Section, number, paragraph, picture, table
from scripts.paper.style import band, counts, decades_of_C, figure, legend, line, plain, save
from scripts.paper.tables import write_csv
from scripts.paper.task_cache import TaskCache
from scripts.paper.tuned import C_GRID, FOLDS, MOST_ITERATIONS, STOP_RULE, kernel_of

NAME = "initialization-heart"
ALL = "I-SVM, all starts"
# A training with a large C takes half a million steps: there only some starts are tried.
ALL_UP_TO, FEW = 1e3, 20
Curves = dict[str, dict[str, list[np.ndarray]]]  # by model, metric and C
# The paper has no table of these curves, but the axes of its figure end where they do.
PAPER_RANGES = {
    "accuracy_percent": (16.7, 100.0),
    "support_vectors": (66, 219),
    "iterations": (254, 495_000),
}


def heart_fold(fold: int, starts_at: list[int]) -> dict[str, dict[str, list]]:
    """One fold of heart, by model, metric and C: a figure for each start.

    `starts_at` says for every C how many starts are tried, at most.
    """
    rows, _ = partition("heart", 0)
    held_out = stratified_folds(rows.y, FOLDS, seed=0) == fold
    taught = np.flatnonzero(~held_out)
    matrix = kernel_matrix(kernel_of(None), rows.x)
    found: dict[str, dict[str, list]] = {
        model: {metric: [] for metric in METRICS} for model in ("SVM", "I-SVM", ALL)
    }
    for C, most in zip(C_GRID, starts_at, strict=True):
        plain_C = normalized_C(C, len(taught), rows.x.shape[1])
        for model, first in (
            ("SVM", taught[:1]), ("I-SVM", taught[:1]), (ALL, taught[starts(len(taught), most)])
        ):  # fmt: skip
            trained = [
                solve(
                    matrix, rows.y, [plain_C], "fw" if model == "SVM" else "mfw",
                    Limits(STOP_RULE, MOST_ITERATIONS), int(start), held_out,
                )
                for start in first
            ]  # fmt: skip
            right = [(t.decisions[0, held_out] >= 0) == (rows.y[held_out] > 0) for t in trained]
            found[model]["accuracy_percent"].append([100 * float(r.mean()) for r in right])
            found[model]["support_vectors"].append([int(t.support[0]) for t in trained])
            found[model]["iterations"].append([int(t.iterations[0]) for t in trained])
    return found


def run(tasks: TaskCache, out: Path) -> Section:
    """The figure."""
    starts_at = [5 if tasks.quick else FEW if C > ALL_UP_TO else 10**6 for C in C_GRID]
    units = {
        str(fold): {"fold": fold, "starts_at": starts_at}
        for fold in range(2 if tasks.quick else FOLDS)
    }
    folds = list(tasks.map(NAME, heart_fold, units).values())
    found = {
        model: {
            metric: [
                np.concatenate([fold[model][metric][place] for fold in folds])
                for place in range(len(C_GRID))
            ]
            for metric in METRICS
        }
        for model in ("SVM", "I-SVM", ALL)
    }
    write_csv(out / "initialization-heart.csv", _lines(found))
    html = picture(
        _draw(found, out / "initialization-heart.png"),
        "Validation results over C (normalized) for heart, linear kernel: means, and the range "
        "over ten folds, or over ten folds and all starts.",
    )
    rows = []
    for metric, (low, high) in PAPER_RANGES.items():
        ours = np.concatenate([at_C for model in found for at_C in found[model][metric]])
        theirs = f'<td class="paper">{number(low)} to {number(high)}</td>'
        rows.append([METRICS[metric], theirs, f"{number(ours.min())} to {number(ours.max())}"])
    html += paragraph("Where the curves begin and end; the paper's from the axes of its figure:")
    html += table(["", "Paper", "Ours"], rows)
    return Section(NAME, "The first pattern and C: heart", html)


def _lines(found: Curves) -> list[dict[str, Any]]:
    return [
        {"model": model, "metric": metric, "C": C, "trainings": len(values)}
        | {
            "mean": round(float(values.mean()), 4),
            "least": round(float(values.min()), 4),
            "most": round(float(values.max()), 4),
        }
        for model, metrics in found.items()
        for metric, at_C in metrics.items()
        for C, values in zip(C_GRID, at_C, strict=True)
    ]


def _draw(found: Curves, path: Path) -> Path:
    drawn = figure(6.5, 8)
    axes = drawn.subplots(len(METRICS), 1, sharex=True)
    for here, (metric, title) in zip(axes, METRICS.items(), strict=True):
        for model in reversed(found):  # the widest band behind the others
            values = found[model][metric]
            band(here, model, C_GRID, [v.min() for v in values], [v.max() for v in values])
        for model in found:
            line(here, model, C_GRID, [values.mean() for values in found[model][metric]])
        plain(here)
        here.set_ylabel(title)
        counts(here)
    axes[-1].set_yscale("log")
    counts(axes[-1])
    decades_of_C(axes[-1])
    drawn.align_ylabels()
    legend(drawn, axes[0])
    return save(drawn, path)
