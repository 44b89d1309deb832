"""Out of core at up to ten million patterns: time a pass, what of it is not hidden, peak memory.

    python -m scripts.benchmarks.out_of_core --folder /scratch/outofcore --keep

Makes stores of 100,000, 1,000,000 and 10,000,000 x 50 patterns, streaming, in each format (those
that are there already are taken as they are), and measures, each time in a process of its own:

kernels   seconds the kernels alone take for 1,000 rows and as many patterns, from memory
pass      seconds a pass with those rows takes, with nothing but the chunk at work in memory
ratio     of the two: to be at most 1.15
waited    share of the pass spent waiting for a chunk: reading that is not hidden behind computing
gather    seconds to fetch 18,000 scattered rows
peak      of `python -m bigsvm.train` with `memory_limit: 512MiB`: to be under 1 GiB
"""

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np

MODULE = "scripts.benchmarks.out_of_core"
FEATURES = 50
MOVED = 1000
GATHERED = 18_000
FORMATS = {
    "zarr-zstd": ("zarr", "zstd"),
    "zarr-none": ("zarr", "none"),
    "hdf5": ("h5", "none"),
}
MADE_AT_ONCE = 100_000
KERNEL_CHUNKS = 24
TRAIN = {
    "model": {"C": 1.0, "kernel": {"name": "rbf", "sigma": 7.0}},
    "solver": {
        "schedule": "block",
        "memory_limit": "512MiB",
        "max_iterations": 6000,
        "absolute_tolerance": 1e-5,
    },
    "run": {"snapshot_every": 1_000_000},
}


def store_path(folder: Path, rows: int, form: str) -> Path:
    return folder / f"{rows}-{form}.{FORMATS[form][0]}"


def make_stores(folder: Path, rows: int, forms: list[str]) -> None:
    """Write the stores that are not there yet, all from one stream of rows."""
    from bigsvm.stores.writer import StoreMetadata, StoreWriter

    missing = [form for form in forms if not store_path(folder, rows, form).exists()]
    needed = len(missing) * rows * (4 * FEATURES + 1)
    if needed > 0.95 * shutil.disk_usage(folder).free:
        sys.exit(f"{folder}: {needed / 1e9:.1f} GB are needed, and not free; name another --folder")
    if not missing:
        return
    generator = np.random.default_rng(rows)
    began = time.perf_counter()
    with ExitStack() as stack:
        writers = [
            stack.enter_context(
                StoreWriter(
                    store_path(folder, rows, form),
                    {"train": rows},
                    FEATURES,
                    StoreMetadata((0, 1), source="bench_outofcore"),
                    compression=FORMATS[form][1],
                )
            )
            for form in missing
        ]
        for start in range(0, rows, MADE_AT_ONCE):
            count = min(MADE_AT_ONCE, rows - start)
            y = generator.integers(0, 2, count, dtype=np.int8) * np.int8(2) - np.int8(1)
            x = generator.standard_normal((count, FEATURES), dtype=np.float32)
            x[:, :5] += 0.7 * y[:, None]
            for writer in writers:
                writer.append("train", x, y)
            tell(f"making {rows:,} rows: {start + count:,} ({time.perf_counter() - began:.0f} s)")
        tell(f"making {rows:,} rows: to the disk")


def measure_pass(store: Path, rounds: int, cold: bool) -> dict[str, float]:
    """Kernels alone and passes over the store, taking turns; the best of each."""
    from bigsvm import kernels
    from bigsvm.backends.local import LocalBackend
    from bigsvm.kernels import Kernel, block_of
    from bigsvm.stores.fingerprint import verified_fingerprint
    from bigsvm.stores.store import open_dataset

    kernel = Kernel("rbf", 1 / (2 * 7.0**2))
    kernels.warm_up(kernel)
    with open_dataset(store) as dataset:
        verified_fingerprint(dataset)  # as a training does: from now on every chunk is checked
        backend = LocalBackend(dataset, kernel, 0)
        generator = np.random.default_rng(0)
        rows = backend.gather(generator.choice(dataset.n, MOVED))
        coef = generator.normal(size=MOVED)
        spans = list(dataset.spans())
        chunks, some = len(spans), spans[:KERNEL_CHUNKS]
        blocks = [block_of(dataset.read(*span), span[0]) for span in some]
        sums = np.zeros((1, dataset.n))
        waited = 0.0
        timed_blocks = backend._blocks

        def watched() -> Iterator[Any]:
            nonlocal waited
            following = timed_blocks()
            while True:
                requested = time.perf_counter()
                block = next(following, None)
                waited += time.perf_counter() - requested
                if block is None:
                    return
                yield block

        backend._blocks = watched  # type: ignore[method-assign]
        alone, passes, waits, gathers = [], [], [], []
        for _ in range(rounds):
            began = time.perf_counter()
            for block in islice(cycle(blocks), chunks):  # as long as a pass: noise strikes alike
                kernels.products(kernel, block, rows, coef[:, None], sums)
            alone.append(time.perf_counter() - began)
            if cold:
                forget(store)
            waited = 0.0
            began = time.perf_counter()
            backend.matvec(rows, coef)
            passes.append(time.perf_counter() - began)
            waits.append(waited / passes[-1])
            if cold:
                forget(store)
            index = np.sort(generator.choice(dataset.n, min(GATHERED, dataset.n), replace=False))
            began = time.perf_counter()
            backend.gather(index)
            gathers.append(time.perf_counter() - began)
    return {
        "kernels": min(alone),
        "pass": min(passes),
        "ratio": min(passes) / min(alone),
        "waited": statistics.median(waits),
        "gather": min(gathers),
    }


def forget(store: Path) -> None:
    """Have the system drop what it keeps of the files in memory."""
    for path in [store] if store.is_file() else store.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def measure_training(store: Path, folder: Path) -> dict[str, float]:
    """A real training, short; its peak memory as the system counted it."""
    import yaml

    run_dir = folder / "run"
    shutil.rmtree(run_dir, ignore_errors=True)
    config = folder / "train.yaml"
    config.write_text(yaml.safe_dump({"data": {"train": str(store)}, **TRAIN}))
    began = time.perf_counter()
    command = [sys.executable, "-m", "bigsvm.train", str(config), "--run-dir", str(run_dir)]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"training on {store} failed: {done.stderr.strip()[-2000:]}")
    summary = json.loads((run_dir / "summary.json").read_text())
    shutil.rmtree(run_dir)
    if summary["passes"] < 2:
        sys.exit(f"training on {store}: {summary['passes']} passes say nothing of its memory")
    return {
        "peak": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
        "seconds": time.perf_counter() - began,
        "passes": summary["passes"],
        "iterations": summary["iterations"],
    }


def in_own_process(what: str, store: Path, options: Namespace) -> dict[str, float]:
    """Measure in a new process, so that its memory is its own."""
    command = [sys.executable, "-m", MODULE, "--measure", what, str(store)]
    command += ["--folder", str(options.folder), "--rounds", str(options.rounds)]
    command += ["--cold"] if options.cold else []
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    return json.loads(done.stdout)


def tell(what: str) -> None:
    print(what.ljust(78), end="\r" if sys.stderr.isatty() else "\n", file=sys.stderr, flush=True)


HEADING = (
    "| rows | format | kernels s | pass s | ratio | waited | gather s | peak MiB | "
    "train s (passes) |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


def parse_arguments() -> Namespace:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--folder", type=Path, required=True, help="where the stores go (6.1 GB for all of them)")
    add("--rows", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    add("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    add("--rounds", type=int, default=3, help="of each timing; the best counts")
    add("--cold", action="store_true", help="from the disk, not from the system's memory of it")
    add("--keep", action="store_true", help="keep the stores for the next time")
    add("--measure", nargs=2, metavar=("WHAT", "STORE"), help="one measurement, as JSON")
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.measure:
        what, store = options.measure[0], Path(options.measure[1])
        if what == "pass":
            result = measure_pass(store, options.rounds, options.cold)
        else:
            result = measure_training(store, options.folder)
        print(json.dumps(result))
        return
    print(HEADING, flush=True)
    for rows in options.rows:
        make_stores(options.folder, rows, options.formats)
        for form in options.formats:
            store = store_path(options.folder, rows, form)
            tell(f"{rows:,} rows, {form}: passes")
            timed = in_own_process("pass", store, options)
            tell(f"{rows:,} rows, {form}: training")
            trained = in_own_process("training", store, options)
            print(
                f"| {rows:,} | {form} | {timed['kernels']:.2f} | {timed['pass']:.2f} "
                f"| {timed['ratio']:.2f} | {100 * timed['waited']:.0f} % | {timed['gather']:.3f} "
                f"| {trained['peak'] / 2**20:.0f} | {trained['seconds']:.0f} "
                f"({trained['passes']}) |",
                flush=True,
            )
            if not options.keep:
                shutil.rmtree(store) if store.is_dir() else store.unlink()


if __name__ == "__main__":
    main()
