"""What a cluster costs and gives: python scripts/bench_dask.py

Local workers against threads, on synthetic data (made once, kept in --folder):

- a pass with nothing to compute: what sending, waiting and gathering cost;
- a pass with --moved rows: two threads, one worker, two workers;
- trainings with the block and the exact schedule to the same iteration, by the whole command: time
  an iteration from the reports in metrics.jsonl, so without start-up. The models must be the same.

Efficiency is the time of two threads in one process over that of two workers of one thread.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import yaml

from bigsvm.backends import Backend
from bigsvm.backends.dask import DaskBackend
from bigsvm.backends.local import LocalBackend
from bigsvm.cluster.start import connected
from bigsvm.config import ClusterConfig
from bigsvm.kernels import Kernel
from bigsvm.preparation.options import PrepareOptions
from bigsvm.prepare import prepare
from bigsvm.stores.store import open_dataset

MEMORY = 4 * 2**30


def made(folder: Path, rows: int, features: int) -> Path:
    path = folder / f"{rows}x{features}.zarr"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        options = PrepareOptions(rows=rows, features=features, noise=0.3, scaling="standard")
        prepare("synthetic", path, options)
    return path


def pass_seconds(backend: Backend, moved: int, repeat: int) -> float:
    """The median time of a pass, after one in which the data is read."""
    rows = backend.gather(np.arange(moved) % backend.n)
    coef = np.linspace(-1, 1, moved)
    seconds = []
    for _ in range(repeat + 1):
        begin = time.perf_counter()
        backend.matvec(rows, coef)
        seconds.append(time.perf_counter() - begin)
    return float(np.median(seconds[1:]))


def passes(store: Path, small: Path, options: argparse.Namespace) -> None:
    kernel = Kernel("rbf", 1 / options.features)
    with open_dataset(store) as dataset, open_dataset(small) as few:
        backend = LocalBackend(dataset, kernel, MEMORY, threads=2)
        local = pass_seconds(backend, options.moved, options.repeat)
        del backend
        print(f"pass with {options.moved:,} rows, 2 threads   {1e3 * local:9.1f} ms", flush=True)
        for count in (1, 2):
            config = ClusterConfig(kind="local", workers=count)
            with connected(config, print, lambda: False) as cluster:
                assert cluster is not None
                tiny = DaskBackend(few, str(small.absolute()), kernel, cluster, MEMORY)
                empty = pass_seconds(tiny, 6, 10 * options.repeat)
                full = DaskBackend(dataset, str(store.absolute()), kernel, cluster, MEMORY)
                seconds = pass_seconds(full, options.moved, options.repeat)
            print(
                f"pass with {options.moved:,} rows, {count} worker{'s' * (count > 1):<2}"
                f"  {1e3 * seconds:9.1f} ms, {1e3 * (full.overhead_a_pass or 0):.1f} ms of it "
                f"without computing; empty pass {1e3 * empty:.1f} ms"
            )
        print(f"efficiency of a pass: {100 * local / seconds:.0f} %", flush=True)


def train(store: Path, folder: Path, schedule: str, iterations: int, *settings: str) -> Path:
    features = int(store.stem.split("x")[1])
    config = {
        "data": {"train": str(store)},
        "model": {"C": 1, "kernel": {"name": "rbf", "gamma": 1 / features}},
        "solver": {"schedule": schedule, "max_iterations": iterations, "memory_limit": MEMORY},
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
    reports, models = {}, []
    for name, settings in ways.items():
        run_dir = train(store, options.folder, schedule, iterations, *settings)
        lines = (run_dir / "metrics.jsonl").read_text().splitlines()
        reports[name] = np.array(
            [[r["iteration"], r["seconds"]] for r in map(json.loads, lines)], float
        ).T
        models.append((run_dir / "model.safetensors").read_bytes())
    first = max(table[0, 0] for table in reports.values())
    last = min(table[0, -1] for table in reports.values())
    if first >= last:
        print(f"{schedule}: too few reports; raise the number of iterations")
        return
    each = {
        name: float(np.interp(last, *table) - np.interp(first, *table)) / (last - first)
        for name, table in reports.items()
    }
    for name, seconds in each.items():
        print(f"{schedule}, {name}: {1e3 * seconds:9.3f} ms an iteration")
    print(f"{schedule}: efficiency {100 * each['2 threads'] / each['2 workers']:.0f} %, ", end="")
    print("the same model" if models[0] == models[1] else "ANOTHER MODEL", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=50)
    parser.add_argument("--moved", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=5)
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
