"""Accuracy, support vectors and iterations over C from 1e-5 to 1e5, on ijcnn1 and magic."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bigsvm.tuning.cross_validation import stratified_folds
from scripts.paper.by_columns import rows_of, tested
from scripts.paper.published import ALGORITHMS, KERNELS, METRICS
from scripts.paper.report import Section, number, paragraph, picture, table
from scripts.paper.style import band, counts, decades_of_C, figure, legend, line, plain, save
from scripts.paper.tables import write_csv
from scripts.paper.task_cache import TaskCache, memory_share
from scripts.paper.tuned import BOTH, C_GRID, FOLDS, Validated, trained_each, validate

NAME = "over-C"
SETS = ("ijcnn1", "magic")
MODELS = ("SVM", "I-SVM")
IJCNN1_SIGMA = 1.0  # as in the paper
MAGIC_SIGMAS = tuple(2.0**power for power in range(-3, 5))
# The paper has no table of these curves, but the axes of its figure end where they do.
PAPER_RANGES = {
    ("ijcnn1", "accuracy_percent"): (69.2, 98.9),
    ("ijcnn1", "support_vectors"): (4_420, 45_000),
    ("ijcnn1", "iterations"): (9_420, 402_000),
    ("magic", "accuracy_percent"): (51.3, 88.6),
    ("magic", "support_vectors"): (3_880, 11_700),
    ("magic", "iterations"): (8_260, 1_520_000),
}
Curves = dict[str, dict[str, np.ndarray]]  # by model and metric: (fold, C)


def tune_magic(sigma: float | None, quick: bool) -> list:
    """Return the accuracy of ten folds of magic's training rows: (fold, algorithm, C)."""
    train, _ = rows_of("magic", quick)
    return validate(train, [sigma]).accuracy[0].tolist()


def magic_grid(tasks: TaskCache, kernel: str) -> Validated:
    """magic's cross-validation."""
    some = [1.0, 4.0] if tasks.quick else list(MAGIC_SIGMAS)
    sigmas: Sequence[float | None] = [None] if kernel == "lin" else some
    units = {f"{kernel}-{sigma}": {"sigma": sigma, "quick": tasks.quick} for sigma in sigmas}
    found = tasks.map("magic-tuning", tune_magic, units)
    accuracy = np.array(list(found.values()))
    return Validated(tuple(sigmas), C_GRID, accuracy)


def validated_fold(
    dataset: str, fold: int, sigma: float | None, quick: bool
) -> dict[str, list[dict[str, Any]]]:
    """A fold of all curves of a kernel: by algorithm, a point for each C."""
    rows, _ = rows_of(dataset, quick)
    held_out = stratified_folds(rows.y, FOLDS, seed=0) == fold
    train, test = rows[~held_out], rows[held_out]
    if 4 * len(train) ** 2 <= memory_share():
        return trained_each(train, test, C_GRID, sigma, BOTH)
    return {
        algorithm: [tested(train, test, C, sigma, algorithm) for C in C_GRID] for algorithm in BOTH
    }


def curves(tasks: TaskCache, dataset: str, kernel: str) -> Curves:
    """What the folds gave."""
    sigma = None
    if kernel == "rbf":
        best = magic_grid(tasks, kernel).best("fw")["sigma"] if dataset == "magic" else None
        sigma = best or IJCNN1_SIGMA
    units = {
        f"{dataset}-{kernel}-{fold}": {
            "dataset": dataset, "fold": fold, "sigma": sigma, "quick": tasks.quick,
        }
        for fold in range(1 if tasks.quick else FOLDS)
    }  # fmt: skip
    found = tasks.map(NAME, validated_fold, units).values()
    return {
        model: {
            metric: np.array([[at[metric] for at in of[ALGORITHMS[model]]] for of in found])
            for metric in METRICS
        }
        for model in MODELS
    }


def run(tasks: TaskCache, out: Path) -> Section:
    """The figure, and its ranges beside those of the paper's axes."""
    found = {
        (dataset, kernel): curves(tasks, dataset, kernel) for dataset in SETS for kernel in KERNELS
    }
    write_csv(out / "over-C.csv", _lines(found))
    drawn = _draw(found, out / "over-C.png")
    rows = []
    for (dataset, metric), (low, high) in PAPER_RANGES.items():
        values = np.concatenate(
            [found[dataset, kernel][model][metric] for kernel in KERNELS for model in MODELS]
        )
        theirs = f'<td class="paper">{number(low)} to {number(high)}</td>'
        ours = f"{number(values.min())} to {number(values.max())}"
        rows.append([f"{dataset}: {METRICS[metric]}", theirs, ours])
    html = picture(
        drawn,
        "Validation results over C (normalized): means, and the range over the folds. RBF with "
        "the sigma that is best for SVM.",
    )
    html += paragraph("Where the curves begin and end; the paper's from the axes of its figure:")
    html += table(["", "Paper", "Ours"], rows)
    return Section(NAME, "How much depends on C", html)


def _lines(found: dict[tuple[str, str], Curves]) -> list[dict[str, Any]]:
    return [
        {"dataset": dataset, "kernel": kernel, "model": model, "metric": metric, "C": C}
        | {
            "mean": round(float(values[:, place].mean()), 4),
            "least": round(float(values[:, place].min()), 4),
            "most": round(float(values[:, place].max()), 4),
            "folds": len(values),
        }
        for (dataset, kernel), curve in found.items()
        for model, metrics in curve.items()
        for metric, values in metrics.items()
        for place, C in enumerate(C_GRID)
    ]


def _draw(found: dict[tuple[str, str], Curves], path: Path) -> Path:
    drawn = figure(11, 7)
    axes = drawn.subplots(len(METRICS), len(found), sharex=True, sharey="row", squeeze=False)
    for column, ((dataset, kernel), curve) in enumerate(found.items()):
        for row, (metric, title) in enumerate(METRICS.items()):
            here = axes[row, column]
            for model in MODELS:
                values = curve[model][metric]
                line(here, model, C_GRID, values.mean(axis=0))
                band(here, model, C_GRID, values.min(axis=0), values.max(axis=0))
            plain(here)
            if row == 0:
                here.set_title(f"{dataset}, {KERNELS[kernel]}", fontsize=11)
            if column == 0:
                here.set_ylabel(title)
            if metric == "iterations":
                here.set_yscale("log")
                decades_of_C(here)
            elif metric == "support_vectors":
                counts(here)
    legend(drawn, axes[0, 0])
    return save(drawn, path)
