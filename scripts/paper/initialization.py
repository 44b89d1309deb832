"""How much depends on the first pattern: models from every start, linear kernel."""

from pathlib import Path

import numpy as np

from bigsvm.config import normalized_C
from bigsvm.solvers.precomputed import Limits, decisions, kernel_matrix, solve
from scripts.paper.exhaustive import repetitions
from scripts.paper.partitions import partition
from scripts.paper.published import Cell, cells, sizes
from scripts.paper.report import Section, beside, table
from scripts.paper.tables import write_csv
from scripts.paper.task_cache import TaskCache
from scripts.paper.tuned import MOST_ITERATIONS, STOP_RULE, kernel_of

NAME = "initialization"
# All starts where there are no more training rows than this; else some, drawn at random.
ALL_UP_TO, SOME = 250, 100


def from_every_start(
    dataset: str, repetition: int, C: float, most_starts: int
) -> dict[str, list[float]]:
    """[mean, mean of squares, count] of the overlap of two models, and of the accuracy."""
    train, test = partition(dataset, repetition)
    matrix = kernel_matrix(kernel_of(None), train.x)
    cross = kernel_matrix(kernel_of(None), train.x, test.x)
    plain_C = normalized_C(C, *train.x.shape)
    support, right = [], []
    for start in starts(len(train), most_starts):
        limits = Limits(STOP_RULE, MOST_ITERATIONS)
        found = solve(matrix, train.y, [plain_C], "mfw", limits, int(start))
        decided = decisions(cross, train.y, found.alpha)[0]
        support.append(found.alpha[0] > 0)
        right.append(100 * float(np.mean((decided >= 0) == (test.y > 0))))
    return {
        "sv_overlap_percent": _moments(overlaps(np.array(support))),
        "accuracy_percent": _moments(np.array(right)),
    }


def overlaps(support: np.ndarray) -> np.ndarray:
    """Of each two sets (rows, boolean): how much of what is in either is in both, in percent."""
    members = support.astype(np.float32)
    both = members @ members.T
    sizes = members.sum(axis=1)
    either = sizes[:, None] + sizes[None, :] - both
    pairs = np.triu_indices(len(support), 1)
    return 100 * both[pairs].astype(np.float64) / either[pairs]


def _most_starts(dataset: str) -> int:
    rows = sizes()[dataset].train
    return rows if rows <= ALL_UP_TO else SOME


def starts(n: int, most: int) -> np.ndarray:
    if n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, most, replace=False))


def _moments(values: np.ndarray) -> list[float]:
    return [float(values.mean()), float(np.square(values).mean()), len(values)]


def pooled(moments: list[list[float]]) -> Cell:
    """Mean and deviation of all values behind several `_moments`."""
    means, squares, weights = np.array(moments).T
    mean = np.average(means, weights=weights)
    variance = np.average(squares, weights=weights) - mean**2
    return Cell(float(mean), float(np.sqrt(max(0.0, variance))))


def run(tasks: TaskCache, out: Path) -> Section:
    """The table: overlaps, and the accuracies of SVM, I-SVM and I-SVM from all starts."""
    tuned = repetitions(tasks)
    sets = dict.fromkeys(name.rsplit("-", 2)[0] for name in tuned)
    numbers = sorted({int(name.rsplit("-", 1)[1]) for name in tuned})
    units = {
        f"{dataset}-{number}": {
            "dataset": dataset,
            "repetition": number,
            "C": tuned[f"{dataset}-lin-{number}"]["I-SVM"]["C"],
            "most_starts": 20 if tasks.quick else _most_starts(dataset),
        }
        for dataset in sets
        for number in numbers
    }
    found = tasks.map(NAME, from_every_start, units, lambda unit: sizes()[unit["dataset"]].train)
    lines, rows = [], []
    for dataset in sets:
        ours = {
            ("I-SVM all starts", metric): pooled(
                [found[f"{dataset}-{number}"][metric] for number in numbers]
            )
            for metric in ("sv_overlap_percent", "accuracy_percent")
        }
        for model in ("SVM", "I-SVM"):
            values = [tuned[f"{dataset}-lin-{k}"][model]["accuracy_percent"] for k in numbers]
            ours[model, "accuracy_percent"] = Cell(
                float(np.mean(values)), float(np.std(values, ddof=1))
            )
        row = [dataset]
        for model, metric in (
            ("I-SVM all starts", "sv_overlap_percent"),
            ("SVM", "accuracy_percent"),
            ("I-SVM", "accuracy_percent"),
            ("I-SVM all starts", "accuracy_percent"),
        ):
            theirs, cell = cells()[NAME, dataset, "lin", model, metric], ours[model, metric]
            row += beside(theirs, cell)
            lines.append(
                {"dataset": dataset, "model": model, "metric": metric, "paper": theirs.mean,
                 "paper_std": theirs.std, "ours": round(cell.mean, 3),
                 "ours_std": round(cell.std or 0.0, 3)}
            )  # fmt: skip
        rows.append(row)
    write_csv(out / "initialization.csv", lines)
    headings = ["Set", "Overlap of support vectors (%)", "SVM accuracy (%)", "I-SVM accuracy (%)",
                "I-SVM, all starts (%)"]  # fmt: skip
    html = table(headings, rows, [1, 2, 2, 2, 2])
    return Section(NAME, "How much depends on the first pattern", html)
