"""What a cluster costs and gives: python -m scripts.benchmarks.cluster

Local workers against threads, on synthetic data (made once, kept in --folder):

- a pass with nothing to compute: what sending, waiting and gathering cost;
- a pass with --moved rows: two threads, one worker, two workers;
- trainings with the block and the exact schedule to the same iteration, by the whole command: time
  an iteration from the reports in metrics.jsonl, so without start-up. The models must be the same.

Efficiency is the time of two threads in one process over that of two workers of one thread. All
take turns, and the best time of each counts.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import yaml

from bigsvm.backends import Backend
from bigsvm.backends.dask import DaskBackend
from bigsvm.backends.local import LocalBackend
from bigsvm.cluster.start import connect
from bigsvm.config import ClusterConfig, PrepareOptions
from bigsvm.kernels import Kernel
from bigsvm.preparation.pipeline import prepare
from bigsvm.stores.store import open_dataset

MEMORY = 4 * 2**30


def made(folder: Path, rows: int, features: int) -> Path:
    path = folder / f"{rows}x{features}.zarr"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        options = PrepareOptions(rows=rows, features=features, noise=0.3, scaling="standard")
        prepare("synthetic", path, options)
    return path


def one_pass(backend: Backend, moved: int) -> Callable[[], float]:
    """A pass that says how long it took; one in which the data is read is behind it."""
    rows = backend.gather(np.arange(moved) % backend.n)
    coef = np.linspace(-1, 1, moved)

    def seconds() -> float:
        begin = time.perf_counter()
        backend.matvec(rows, coef)
        return time.perf_counter() - begin

    seconds()
    return seconds


def best_in_turns(ways: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """The best time of each; they take turns, because the machine may be busy at times."""
    seconds = [{name: way() for name, way in ways.items()} for _ in range(rounds)]
    return {name: min(taken[name] for taken in seconds) for name in ways}


def passes(store: Path, small: Path, options: argparse.Namespace) -> None:
    kernel = Kernel("rbf", 1 / options.features)
    with open_dataset(store) as dataset, open_dataset(small) as few:
        local = LocalBackend(dataset, kernel, MEMORY, threads=2)
        here = one_pass(local, options.moved)
        for count in (1, 2):
            config = ClusterConfig(kind="local", workers=count)
            with connect(config, print, lambda: False) as cluster:
                assert cluster is not None
                tiny = DaskBackend(few, str(small.absolute()), kernel, cluster, MEMORY)
                empty = best_in_turns({"empty": one_pass(tiny, 6)}, 10 * options.passes)["empty"]
                full = DaskBackend(dataset, str(store.absolute()), kernel, cluster, MEMORY)
                there = one_pass(full, options.moved)
                best = best_in_turns({"threads": here, "workers": there}, options.passes)
            print(
                f"pass with {options.moved:,} rows: 2 threads {1e3 * best['threads']:.0f} ms, "
                f"{count} worker{'s' * (count > 1)} {1e3 * best['workers']:.0f} ms, "
                f"{1e3 * (full.overhead_per_pass or 0):.0f} ms of it without computing; "
                f"empty pass {1e3 * empty:.1f} ms"
            )
    print(f"efficiency of a pass: {100 * best['threads'] / best['workers']:.0f} %", flush=True)


def train(store: Path, folder: Path, schedule: str, iterations: int, *settings: str) -> Path:
    features = int(store.stem.split("x")[1])
    config = {
        "data": {"train": str(store)},
        "model": {"C": 1, "kernel": {"name": "rbf", "gamma": 1 / features}},
        "solver": {
            "schedule": schedule,
            "max_iterations": iterations,
            "memory_limit": MEMORY,
            "absolute_tolerance": 1e-5,
        },
        "run": {"snapshot_every": iterations},
    }
    (folder / "bench.yaml").write_text(yaml.safe_dump(config))
    run_dir = folder / "run"
    command = [sys.executable, "-m", "bigsvm.train", str(folder / "bench.yaml"), "--fresh"]
    command += ["--run-dir", str(run_dir), *(w for s in settings for w in ("--set", s))]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return run_dir


def trainings(store: Path, options: argparse.Namespace, schedule: str, iterations: int) -> None:
    ways = {
        "2 threads": ("cluster.kind=none", "solver.threads=2"),
        "2 workers": ("cluster.kind=local", "cluster.workers=2"),
    }
    models = set()

    def a_step(settings: tuple[str, ...]) -> float:
        """Seconds an iteration, from the second report on: by then all is loaded and read."""
        run_dir = train(store, options.folder, schedule, iterations, *settings)
        models.add((run_dir / "model.safetensors").read_bytes())
        reports = list(map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines()))
        first, last = (reports[i] for i in (1, -1))
        return float(
            (last["seconds"] - first["seconds"]) / (last["iteration"] - first["iteration"])
        )

    each = best_in_turns({n: partial(a_step, s) for n, s in ways.items()}, options.rounds)
    for name, seconds in each.items():
        print(f"{schedule}, {name}: {1e3 * seconds:9.3f} ms an iteration")
    print(f"{schedule}: efficiency {100 * each['2 threads'] / each['2 workers']:.0f} %, ", end="")
    print("the same model" if len(models) == 1 else "OTHER MODELS", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=50)
    parser.add_argument("--moved", type=int, default=1000)
    parser.add_argument("--passes", type=int, default=8, help="of each kind")
    parser.add_argument("--rounds", type=int, default=3, help="of trainings")
    parser.add_argument("--block-iterations", type=int, default=20_000)
    parser.add_argument("--exact-rows", type=int, default=60_000)
    parser.add_argument("--exact-iterations", type=int, default=1000)
    parser.add_argument("--folder", type=Path, default=Path("runs/bench-dask"))
    options = parser.parse_args()
    store = made(options.folder, options.rows, options.features)
    passes(store, made(options.folder, 1000, options.features), options)
    trainings(store, options, "block", options.block_iterations)
    smaller = made(options.folder, options.exact_rows, options.features)
    trainings(smaller, options, "exact", options.exact_iterations)


if __name__ == "__main__":
    main()
