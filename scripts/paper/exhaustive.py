"""Nine sets, two kernels, three models, ten repetitions: the main table, and its summary."""

from pathlib import Path
from typing import Any

import numpy as np

from scripts.paper.published import KERNELS, METRICS, MODELS, SMALL, Cell, cells, sizes
from scripts.paper.report import Section, beside, paragraph, table
from scripts.paper.significance import geometric_mean_percent, ranks
from scripts.paper.tables import write_csv
from scripts.paper.task_cache import TaskCache
from scripts.paper.tuned import SIGMA_GRID, repetition

NAME = "exhaustive"
SUMMARY = "geometric-mean-vs-SVM-percent"
SEPARABLE = ("mushrooms",)

Found = dict[tuple[str, str, str, str], list[float]]  # by set, kernel, model and metric


def repetitions(tasks: TaskCache) -> dict[str, dict[str, dict[str, Any]]]:
    """Every repetition by "set-kernel-number"."""
    sets = ("heart", "iris", "sonar") if tasks.quick else SMALL
    units = {
        f"{dataset}-{kernel}-{number}": {
            "dataset": dataset,
            "kernel": kernel,
            "repetition": number,
            "separable": dataset in SEPARABLE,
            "sigmas": [1.0, 4.0] if tasks.quick else list(SIGMA_GRID),
        }
        for number in range(tasks.repetitions)
        for dataset in sets
        for kernel in KERNELS
    }
    return tasks.map(NAME, repetition, units, _cost)


def _cost(unit: dict[str, Any]) -> float:
    n = 1_000 if unit["separable"] else sizes()[unit["dataset"]].train
    return n**1.5 * (len(unit["sigmas"]) if unit["kernel"] == "rbf" else 3)


def by_cell(results: dict[str, dict[str, dict[str, Any]]]) -> Found:
    """The figures of all repetitions for each cell of the table."""
    found: Found = {}
    for name, models in results.items():
        dataset, kernel, _ = name.rsplit("-", 2)
        for model, figures in models.items():
            for metric in METRICS:
                found.setdefault((dataset, kernel, model, metric), []).append(figures[metric])
    return found


def our_cells(found: Found) -> dict[tuple[str, str, str, str], Cell]:
    """Means, deviations and ranks as the paper has them."""
    cells = {}
    for dataset, kernel in dict.fromkeys(key[:2] for key in found):
        for metric in METRICS:
            values = {model: found[dataset, kernel, model, metric] for model in MODELS}
            rank = ranks(values, more_is_better=metric == "accuracy_percent")
            for model in MODELS:
                cells[dataset, kernel, model, metric] = Cell(
                    float(np.mean(values[model])),
                    float(np.std(values[model], ddof=1)),
                    rank[model],
                    len(values[model]),
                )
    return cells


def summary(means: dict[tuple[str, str, str, str], Cell]) -> dict[tuple[str, str], float]:
    """Each model's geometric mean over sets and kernels, in percent of SVM, by model and metric."""
    places = list(dict.fromkeys(key[:2] for key in means))
    return {
        (model, metric): geometric_mean_percent(
            [means[*place, model, metric].mean for place in places],
            [means[*place, "SVM", metric].mean for place in places],
        )
        for model in MODELS
        for metric in METRICS
    }


def run(tasks: TaskCache, out: Path) -> Section:
    """The table and its summary."""
    results = repetitions(tasks)
    ours = our_cells(by_cell(results))
    theirs = {key[1:]: cell for key, cell in cells().items() if key[0] == NAME}
    _write(out, results, ours, theirs)
    return Section(NAME, "The exhaustive comparison", _page(ours, theirs))


def _write(out: Path, results: dict, ours: dict, theirs: dict) -> None:
    write_csv(
        out / "exhaustive-repetitions.csv",
        [
            {"repetition": name, "model": model} | figures
            for name, models in results.items()
            for model, figures in models.items()
        ],
    )
    write_csv(
        out / "exhaustive.csv",
        [
            dict(zip(("dataset", "kernel", "model", "metric"), key, strict=True))
            | {
                "paper": theirs[key].mean, "paper_std": theirs[key].std,
                "paper_rank": theirs[key].rank, "ours": round(cell.mean, 4),
                "ours_std": round(cell.std or 0, 4), "ours_rank": cell.rank,
            }
            for key, cell in ours.items()
        ],
    )  # fmt: skip
    write_csv(out / "summary.csv", summary_rows(ours))


def summary_rows(ours: dict) -> list[dict[str, Any]]:
    """The summary beside the paper's."""
    return [
        {
            "model": model,
            "metric": metric,
            "paper": cells()[SUMMARY, "all nine", "lin+rbf", model, metric].mean,
            "ours": round(percent, 2),
        }
        for (model, metric), percent in summary(ours).items()
    ]


def _page(ours: dict, theirs: dict) -> str:
    places = list(dict.fromkeys(key[:2] for key in ours))
    html = paragraph("Geometric means over sets and kernels, in percent of SVM:") + table(
        ["", *MODELS],
        [
            [title]
            + [
                cell
                for model in MODELS
                for cell in beside(
                    cells()[SUMMARY, "all nine", "lin+rbf", model, metric],
                    Cell(summary(ours)[model, metric]),
                )
            ]
            for metric, title in METRICS.items()
        ],
        [1, 2, 2, 2],
    )
    for metric, title in METRICS.items():
        rows = [
            [f"{dataset}, {kernel}"]
            + [
                cell
                for model in MODELS
                for cell in beside(
                    theirs[dataset, kernel, model, metric], ours[dataset, kernel, model, metric]
                )
            ]
            for dataset, kernel in places
        ]
        html += f"<h3>{title}</h3>" + table(["Set, kernel", *MODELS], rows, [1, 2, 2, 2])
    return html
