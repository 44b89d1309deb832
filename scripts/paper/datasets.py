"""The table of data sets: the paper's sizes beside ours."""

from dataclasses import asdict, fields
from pathlib import Path

import numpy as np

from scripts.paper.partitions import partition
from scripts.paper.published import Size, sizes
from scripts.paper.report import Section, table
from scripts.paper.tables import write_csv
from scripts.paper.task_cache import TaskCache

NAME = "datasets"


def measured(name: str) -> dict[str, float]:
    """The size of a set as it is used here (its first partition)."""
    train, test = partition(name, 0)
    y = np.concatenate([train.y, test.y])
    majority = round(100 * max(float(np.mean(y > 0)), float(np.mean(y < 0))), 1)
    return asdict(Size(len(train), len(test), train.x.shape[1], majority))


def run(tasks: TaskCache, out: Path) -> Section:
    """The table; MiniBooNE has its own section."""
    sets = [name for name in sizes() if name != "miniboone"]
    if tasks.quick:
        sets = ["heart", "iris", "sonar"]
    found = tasks.map(NAME, measured, {name: {"name": name} for name in sets})
    names = [field.name for field in fields(Size)]
    write_csv(
        out / "datasets.csv",
        [
            {"dataset": name}
            | {f"{key}_paper": value for key, value in asdict(sizes()[name]).items()}
            | found[name]
            for name in sets
        ],
    )
    rows = []
    for name in sets:
        cells = [name]
        for key in names:
            theirs, ours = getattr(sizes()[name], key), found[name][key]
            kind = "" if theirs == ours else "more" if ours > theirs else "fewer"
            cells += [f'<td class="paper">{theirs:,}</td>', f'<td class="{kind}">{ours:,}</td>']
        rows.append(cells)
    headings = ["Set", "Training rows", "Test rows", "Features", "Larger class (%)"]
    return Section(NAME, "The data sets", table(headings, rows, [1, 2, 2, 2, 2]))
