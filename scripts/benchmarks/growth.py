"""How fit time, passes, work, support vectors and memory grow with the number of rows.

    python -m scripts.benchmarks.growth covtype --sizes 15000 50000 150000 464809
    python -m scripts.benchmarks.growth synthetic --sizes 100000 1000000

Each size is trained to convergence at the default tolerance by `bigsvm.train`, in a process of its
own, on a store of that many rows; scikit-learn-intelex beside it with `--intelex`, up to that many
rows. The last line is the exponent of time in the number of rows, by least squares.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scripts.benchmarks.machine import machine

COVTYPE = {"scaling": "minmax", "test_rows": 116_203, "seed": 0}
SYNTHETIC = {"features": 20, "noise": 0.01, "scaling": "none", "seed": 0}
MODELS: dict[str, dict[str, Any]] = {
    "covtype": {"C": 32, "kernel": {"name": "rbf", "gamma": 8}},
    "synthetic": {"C": 10, "kernel": {"name": "rbf", "sigma": 0.5}},
}


def training_rows(data: str, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """The first of the training rows, in one random order."""
    from bigsvm.config import DataConfig
    from bigsvm.preparation.data_sets import dataset_spec, resolve_data
    from bigsvm.stores.store import open_dataset

    prepare = COVTYPE if data == "covtype" else {**SYNTHETIC, "rows": rows}
    found = resolve_data(DataConfig(source=data, prepare=prepare)).train
    assert found is not None
    with open_dataset(dataset_spec(found), "train") as dataset:
        x, y = dataset.read(0, dataset.n), dataset.labels()
    if data == "covtype":
        chosen = np.random.default_rng(0).permutation(len(y))[:rows]
        x, y = x[chosen], y[chosen]
    return x, y


def train(data: str, rows: int, memory: str) -> dict[str, Any]:
    """Train bigsvm; the summary of the run."""
    import h5py

    with tempfile.TemporaryDirectory() as folder:
        x, y = training_rows(data, rows)
        with h5py.File(Path(folder, "train.h5"), "w") as file:
            file["X"], file["y"] = x, y
        del x, y
        config = {
            "data": {"train": str(Path(folder, "train.h5"))},
            "model": MODELS[data],
            "solver": {"max_iterations": 10**8, "memory_limit": memory},
            "run": {"dir": str(Path(folder, "run")), "snapshot_every": 10**8},
        }
        path = Path(folder, "config.yaml")
        path.write_text(json.dumps(config))
        subprocess.run(
            [sys.executable, "-m", "bigsvm.train", str(path)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        return json.loads(Path(folder, "run", "summary.json").read_text())


def fit_intelex(data: str, rows: int) -> float:
    """Seconds that scikit-learn-intelex takes for the same."""
    import time

    from sklearnex.svm import SVC

    x, y = training_rows(data, rows)
    model = MODELS[data]
    gamma = model["kernel"].get("gamma") or 1 / (2 * model["kernel"]["sigma"] ** 2)
    begin = time.perf_counter()
    SVC(C=model["C"], gamma=gamma, cache_size=2000).fit(x, y)
    return time.perf_counter() - begin


def exponent(seconds: dict[int, float]) -> str:
    """The power of the number of rows that the seconds grow with."""
    if len(seconds) < 2:
        return "-"
    rows, times = np.log(list(seconds)), np.log(list(seconds.values()))
    return f"{np.polyfit(rows, times, 1)[0]:.2f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.benchmarks.growth", description=__doc__.splitlines()[0]
    )
    parser.add_argument("data", choices=MODELS)
    parser.add_argument("--sizes", type=int, nargs="+", required=True, metavar="N")
    parser.add_argument("--memory", default="1000MiB", help="memory_limit; default 1000MiB")
    parser.add_argument(
        "--intelex", type=int, default=0, metavar="N", help="fit intelex to up to N rows"
    )
    parser.add_argument("--fit-intelex", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.fit_intelex:
        print(fit_intelex(options.data, options.sizes[0]))
        return 0
    print(f"{machine(2)}\n")
    print("| rows | fit s | passes | work | iterations | SVs | peak MiB | intelex s |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    ours: dict[int, float] = {}
    theirs: dict[int, float] = {}
    for rows in sorted(options.sizes):
        summary = train(options.data, rows, options.memory)
        ours[rows] = summary["train_seconds"]
        if rows <= options.intelex:
            command = [sys.executable, "-m", "scripts.benchmarks.growth", options.data]
            command += ["--sizes", str(rows), "--fit-intelex"]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            theirs[rows] = float(done.stdout.split()[-1])
        print(
            f"| {rows:,} | {ours[rows]:.1f} | {summary['passes']} | {summary['work']:.1f} "
            f"| {summary['iterations']:,} | {summary['n_support']:,} "
            f"| {summary['peak_rss_bytes'] / 2**20:,.0f} "
            f"| {f'{theirs[rows]:.1f}' if rows in theirs else '-'} |",
            flush=True,
        )
        if summary["status"] != "converged":
            print(f"{rows:,} rows: {summary['status']}", file=sys.stderr)
            return 1
    print(f"\nexponent of time in rows: bigsvm {exponent(ours)}, intelex {exponent(theirs)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
