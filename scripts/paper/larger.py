"""ijcnn1 and magic, linear and RBF: the test results of the two larger sets."""

from pathlib import Path
from typing import Any

from scripts.paper import over_c
from scripts.paper.by_columns import rows_of
from scripts.paper.by_columns import tested as tested_rows
from scripts.paper.over_c import IJCNN1_SIGMA, MODELS, SETS
from scripts.paper.published import ALGORITHMS, KERNELS, METRICS, Cell, cells
from scripts.paper.report import Section, beside, paragraph, table
from scripts.paper.tables import write_csv
from scripts.paper.task_cache import TaskCache
from scripts.paper.tuned import C_GRID

NAME = "larger"


def tested(dataset: str, model: str, C: float, sigma: float | None, quick: bool) -> dict[str, Any]:
    """A model with its C and sigma, trained on all training rows."""
    train, test = rows_of(dataset, quick)
    point = {"C": C, "sigma": sigma}
    return point | tested_rows(train, test, C, sigma, ALGORITHMS[model])


def chosen(tasks: TaskCache, dataset: str, kernel: str, model: str) -> dict[str, Any]:
    """C and sigma: of magic by its grid; of ijcnn1 only C, by the folds of over-C."""
    if dataset == "magic":
        best = over_c.magic_grid(tasks, kernel).best(ALGORITHMS[model])
        return {"C": best["C"], "sigma": best["sigma"]}
    accuracy = over_c.curves(tasks, dataset, kernel)[model]["accuracy_percent"].mean(axis=0)
    return {
        "C": C_GRID[accuracy.round(6).argmax()],
        "sigma": IJCNN1_SIGMA if kernel == "rbf" else None,
    }


def run(tasks: TaskCache, out: Path) -> Section:
    """The table of the larger sets."""
    points = {
        (dataset, kernel, model): chosen(tasks, dataset, kernel, model)
        for dataset in SETS
        for kernel in KERNELS
        for model in MODELS
    }
    units = {
        "-".join(place): {"dataset": place[0], "model": place[2], "quick": tasks.quick} | point
        for place, point in points.items()
    }
    results = tasks.map(NAME, tested, units)
    write_csv(
        out / "larger.csv",
        [
            dict(zip(("dataset", "kernel", "model"), place, strict=True))
            | {f"{metric}_paper": cells()[NAME, *place, metric].mean for metric in METRICS}
            | results["-".join(place)]
            for place in points
        ],
    )
    html = ""
    for metric, title in METRICS.items():
        rows = [
            [f"{dataset}, {kernel}"]
            + [
                cell
                for model in MODELS
                for cell in beside(
                    cells()[NAME, dataset, kernel, model, metric],
                    Cell(results[f"{dataset}-{kernel}-{model}"][metric]),
                )
            ]
            for dataset in SETS
            for kernel in KERNELS
        ]
        html += f"<h3>{title}</h3>" + table(["Set, kernel", *MODELS], rows, [1, 2, 2])
    html += paragraph("The C (normalized) and sigma that were chosen:")
    html += table(
        ["Set", "Kernel", "Model", "C", "sigma"],
        [
            [*place, f"{point['C']:g}", "" if point["sigma"] is None else f"{point['sigma']:g}"]
            for place, point in points.items()
        ],
    )
    return Section(NAME, "The two larger sets", html)
