"""MiniBooNE's evolution: three models over 40,000 iterations, a model every 5,000.

The trainings are the product's own, `bigsvm.train`, and `bigsvm.evaluate` scores the snapshots. The
whole UCI file is taken where it is present (``--miniboone``, or `MiniBooNE_PID.txt` in the folder
that BIGSVM_DATA names). Otherwise it is the balanced sample of 72,998 rows that OpenML publishes,
and a sample of it with the paper's 71.8 % of background.
"""

import csv
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from bigsvm import evaluate, train
from bigsvm.preparation.sources import locate_files
from bigsvm.readers import ReadOptions, open_reader
from scripts.paper.partitions import Rows, sample
from scripts.paper.published import ALGORITHMS, MODELS, sizes
from scripts.paper.report import Section, paragraph, picture, table
from scripts.paper.style import counts, figure, legend, line, plain, save
from scripts.paper.tables import write_csv
from scripts.paper.task_cache import TaskCache
from scripts.paper.tuned import C_GRID, Validated, validate

NAME = "miniboone"
TUNE_ROWS = 5_000
TITLES = {
    "whole": "the whole UCI set",
    "balanced": "balanced sample, 72,998 rows",
    "majority": "sample of that sample, 71.8 % background",
}


def raw_rows(file: str) -> Rows:
    """The rows of a MiniBooNE file, in float64, without those that are -999 throughout."""
    reader = open_reader(Path(file), ReadOptions(format="miniboone"))
    batches = list(reader.batches())
    x = np.concatenate([batch.x for batch in batches])
    labels = np.concatenate([batch.y for batch in batches])
    measured = (x != -999).any(axis=1)
    return Rows(x[measured], np.where(labels == "signal", 1, -1)[measured].astype(np.int8))


def make_store(file: str, kind: str, rows: int | None, folder: str) -> dict[str, Any]:
    """Rows of one kind of sample, split as in the paper and prepared; says how many there are."""
    from bigsvm.config import PrepareOptions
    from bigsvm.preparation.pipeline import prepare

    taken = raw_rows(file)
    if kind == "majority":
        background = np.flatnonzero(taken.y < 0)
        share = sizes()["miniboone"].majority_percent / 100
        signals = round(len(background) * (1 - share) / share)
        signal = np.random.default_rng(0).choice(np.flatnonzero(taken.y > 0), signals, False)
        taken = taken[np.sort(np.concatenate([background, signal]))]
    taken = sample(taken, rows)
    source, store = Path(folder, f"{kind}.npz"), Path(folder, f"{kind}.zarr")
    np.savez(source, X=taken.x, y=taken.y)
    paper = sizes()["miniboone"]
    options = PrepareOptions(
        scaling="standard", clip=8, positive=1,
        test_rows=round(len(taken) * paper.test / (paper.train + paper.test)),
    )  # fmt: skip
    prepare(str(source), store, options)
    source.unlink()
    test_rows = options.test_rows or 0
    return {
        "store": str(store),
        "train": len(taken) - test_rows,
        "test": test_rows,
        "majority_percent": round(100 * max(np.mean(taken.y < 0), np.mean(taken.y > 0)), 1),
    }


def tune(store: str, sigma: float, rows: int) -> list:
    """The accuracy of ten folds on a part of the training rows: (fold, algorithm, C)."""
    from bigsvm.stores.store import open_dataset

    with open_dataset(store) as dataset:
        rows_there = Rows(dataset.read(0, dataset.n), dataset.labels())
    return validate(sample(rows_there, rows), [sigma]).accuracy[0].tolist()


def evolution(
    store: str, algorithm: str, C: float, sigma: float, iterations: int, every: int, run: str
) -> list[dict[str, float]]:
    """Train with snapshots and score them; a training that was killed is resumed."""
    config = {
        "data": {"train": store, "test": f"{store}/test"},
        "model": {
            "algorithm": algorithm, "C": C, "C_scale": "normalized",
            "kernel": {"name": "rbf", "sigma": sigma},
        },
        # The paper trains for a fixed number of iterations, whatever the gap.
        "solver": {
            "schedule": "exact", "absolute_tolerance": 1e-12, "max_iterations": iterations,
            "memory_limit": "4GiB",
        },
        "run": {"snapshot_every": every, "checkpoint_seconds": 30},
    }  # fmt: skip
    path = Path(f"{run}.yaml")
    path.write_text(yaml.safe_dump(config))
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        train.main([str(path), "--run-dir", run])
        evaluate.main([run])
    with Path(run, "evaluation.csv").open() as file:
        return [
            {
                "iteration": int(row["iteration"]),
                "accuracy_percent": 100 * float(row["accuracy"]),
                "support_vectors": int(row["n_support"]),
            }
            for row in csv.DictReader(file)
        ]


def run(tasks: TaskCache, out: Path) -> Section:
    """The figure: test accuracy and support vectors over the iterations."""
    file = str(tasks.miniboone or locate_files(NAME)[0])
    folder = tasks.folder / "miniboone-runs"
    folder.mkdir(parents=True, exist_ok=True)
    html, lines = "", []
    for kind in _kinds(file):
        found, point, there = _of_sample(tasks, file, kind, folder)
        lines += [
            {"sample": kind, "model": model, "C": point[model]["C"], "sigma": point["SVM"]["sigma"]}
            | row
            for model, rows in found.items()
            for row in rows
        ]
        html += f"<h3>{TITLES[kind][0].upper()}{TITLES[kind][1:]}</h3>" + paragraph(
            f"{there['train']:,} training and {there['test']:,} test rows, "
            f"{there['majority_percent']} % of the larger class; sigma "
            f"{point['SVM']['sigma']:g}, C (normalized) {point['SVM']['C']:g} for SVM, "
            f"{point['I-SVM']['C']:g} for I-SVM, 1 for F-I-SVM."
        )
        html += picture(
            _draw(found, out / f"miniboone-{kind}.png"),
            f"MiniBooNE, {TITLES[kind]}: test accuracy and support vectors, a model every "
            "5,000 iterations.",
        )
        html += _table(found)
    write_csv(out / "miniboone.csv", lines)
    return Section(NAME, "MiniBooNE's evolution", html)


def _kinds(file: str) -> list[str]:
    return ["whole"] if len(raw_rows(file)) > 100_000 else ["balanced", "majority"]


def _of_sample(
    tasks: TaskCache, file: str, kind: str, folder: Path
) -> tuple[dict[str, list], dict[str, Any], dict[str, Any]]:
    """The evolution of each model, its C and sigma, and the size of the sample."""
    quick = tasks.quick
    arguments = {"file": file, "kind": kind, "rows": 2_000 if quick else None,
                 "folder": str(folder)}  # fmt: skip
    there = tasks.map("miniboone-stores", make_store, {kind: arguments})[kind]
    sigmas = [4.0, 8.0] if quick else [2.0, 4.0, 8.0, 16.0]
    grid = tasks.map(
        "miniboone-tuning",
        tune,
        {
            f"{kind}-{sigma:g}": {
                "store": there["store"], "sigma": sigma, "rows": 400 if quick else TUNE_ROWS
            }
            for sigma in sigmas
        },
    )  # fmt: skip
    accuracy = np.array(list(grid.values()))
    validated = Validated(tuple(sigmas), C_GRID, accuracy)
    point = {model: validated.best(ALGORITHMS[model]) for model in ("SVM", "I-SVM")}
    # As in the paper: nothing is tuned for this one, sigma is that of SVM.
    point["F-I-SVM"] = {"C": 1.0, "sigma": point["SVM"]["sigma"]}
    units = {
        f"{kind}-{model}": {
            "store": there["store"], "algorithm": ALGORITHMS[model],
            "C": point[model]["C"], "sigma": point[model]["sigma"],
            "iterations": 200 if quick else 40_000, "every": 50 if quick else 5_000,
            "run": str(folder / f"{kind}-{model}"),
        }
        for model in MODELS
    }  # fmt: skip
    found = tasks.map(NAME, evolution, units)
    return {model: found[f"{kind}-{model}"] for model in MODELS}, point, there


def _draw(found: dict[str, list], path: Path) -> Path:
    drawn = figure(7, 5.6)
    above, below = drawn.subplots(2, 1, sharex=True)
    for model, rows in found.items():
        iterations = [row["iteration"] for row in rows]
        line(above, model, iterations, [row["accuracy_percent"] for row in rows], clip_on=False)
        line(below, model, iterations, [row["support_vectors"] for row in rows], clip_on=False)
    above.set_ylabel("Test accuracy (%)")
    below.set_ylabel("Support vectors")
    below.set_xlabel("Iteration")
    below.set_xlim(left=0)
    below.set_ylim(bottom=0)
    for axes in (above, below):
        plain(axes)
    counts(below)
    below.xaxis.set_major_formatter(below.yaxis.get_major_formatter())
    drawn.align_ylabels()
    legend(drawn, above)
    return save(drawn, path)


def _table(found: dict[str, list]) -> str:
    by_iteration: dict[int, dict[str, dict]] = {}
    for model, rows in found.items():
        for row in rows:
            by_iteration.setdefault(row["iteration"], {})[model] = row
    body = []
    for iteration, models in sorted(by_iteration.items()):
        cells = [f"{iteration:,}"]
        for model in MODELS:
            row = models[model]
            cells += [f"{row['accuracy_percent']:.2f}", f"{row['support_vectors']:,}"]
        body.append(cells)
    headings = ["Iteration", *(f"{model}: accuracy (%), support vectors" for model in MODELS)]
    return table(headings, body, [1, 2, 2, 2])
