"""Covtype whole: test accuracy over fit time, for bigsvm and for what is used in its place.

    python -m bigsvm.train configs/covtype.yaml
    python -m bigsvm.evaluate runs/covtype
    python -m scripts.benchmarks.covtype runs/covtype --out bench-covtype

bigsvm's curve is that of the snapshots of the run directory. Every peer is fitted in a process of
its own on rows of the same store, killed after `--limit` seconds, and scored on the same test set.
Run again, the command fits only what has no result yet.
"""

import argparse
import csv
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scripts.benchmarks.machine import machine


def intelex(gamma: float, C: float) -> Any:
    """scikit-learn-intelex's SVC; its cache size is in megabytes."""
    from sklearnex.svm import SVC

    return SVC(C=C, gamma=gamma, cache_size=2000)


def nystroem(rank: int) -> Callable[[float, float], Any]:
    """A low-rank approximation of the kernel, and a linear SVM on it."""

    def build(gamma: float, C: float) -> Any:
        from sklearn.kernel_approximation import Nystroem
        from sklearn.pipeline import make_pipeline
        from sklearn.svm import LinearSVC

        features = Nystroem(gamma=gamma, n_components=rank, random_state=0)
        return make_pipeline(features, LinearSVC(C=C, dual=False, random_state=0))

    return build


def lightgbm(gamma: float, C: float) -> Any:
    """Boosted trees: 1,000 of them, larger than the default, as a set of this size asks for."""
    from lightgbm import LGBMClassifier

    return LGBMClassifier(n_estimators=1000, num_leaves=255, random_state=0, verbose=-1)


# To add a peer, add a function that builds its estimator, with the rows to fit it to (None: all).
PEERS: dict[str, tuple[Callable[[float, float], Any], int | None]] = {
    "intelex SVC, 50,000 rows": (intelex, 50_000),
    "intelex SVC, 100,000 rows": (intelex, 100_000),
    "intelex SVC, all rows": (intelex, None),
    "Nystroem 200 + LinearSVC": (nystroem(200), None),
    "Nystroem 1,000 + LinearSVC": (nystroem(1000), None),
    "LightGBM, 1,000 trees": (lightgbm, None),
}


def fit(run: Path, name: str) -> dict[str, Any]:
    """Fit a peer to the training rows of a run, and score it on its test rows."""
    from bigsvm.config.file import load_config
    from bigsvm.preparation.data_sets import dataset_spec, resolve_data
    from bigsvm.stores.store import open_dataset

    config = load_config(run / "config.yaml")
    data = resolve_data(config.data)
    parts = []
    for part, spec in (("train", data.train), ("test", data.test)):
        assert spec is not None
        with open_dataset(dataset_spec(spec), part) as dataset:
            parts += [dataset.read(0, dataset.n), dataset.labels()]
    x, y, x_test, y_test = parts
    build, rows = PEERS[name]
    chosen = np.random.default_rng(0).permutation(len(y))[:rows]
    gamma = config.model.kernel.gamma
    assert gamma is not None
    model = build(gamma, float(config.model.C))
    x, y = x[chosen], y[chosen]
    begin = time.perf_counter()
    model.fit(x, y)
    seconds = time.perf_counter() - begin
    return {
        "seconds": seconds,
        "accuracy": float(np.mean(model.predict(x_test) == y_test)),
        "n_support": int(np.sum(model.n_support_)) if hasattr(model, "n_support_") else None,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def fitted_within(run: Path, name: str, limit: float) -> dict[str, Any]:
    """`fit` in a process of its own; what it says, or why there is no result."""
    command = [sys.executable, "-m", "scripts.benchmarks.covtype", str(run), "--fit", name]
    try:
        done = subprocess.run(command, timeout=limit, capture_output=True, text=True)
    except subprocess.TimeoutExpired:
        return {"failed": f"no model within {limit:.0f} s"}
    if done.returncode:
        return {"failed": (done.stderr.strip() or "killed").splitlines()[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def curve(run: Path) -> list[tuple[float, float]]:
    """(seconds, accuracy) of the snapshots that `bigsvm.evaluate` has scored."""
    seconds = {}
    for line in (run / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        seconds[record["iteration"]] = record["seconds"]
    known = np.array(sorted(seconds.items()))
    with (run / "evaluation.csv").open() as file:
        scored = [(int(row["iteration"]), float(row["accuracy"])) for row in csv.DictReader(file)]
    times = np.interp([iteration for iteration, _ in scored], known[:, 0], known[:, 1])
    return [(float(at), accuracy) for at, (_, accuracy) in zip(times, scored, strict=True)]


def draw(path: Path, ours: list[tuple[float, float]], results: dict[str, dict[str, Any]]) -> None:
    """Draw accuracy over time."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    seconds, accuracy = zip(*ours, strict=True)
    axes.plot(seconds, 100 * np.array(accuracy), "-o", markersize=3, label="bigsvm, snapshots")
    for marker, (name, result) in zip("sD^vP*X", results.items(), strict=False):
        if "accuracy" in result:
            axes.plot(result["seconds"], 100 * result["accuracy"], marker, label=name)
    axes.set(xscale="log", xlabel="seconds of fitting", ylabel="test accuracy, %", ylim=(60, 99))
    axes.set_title("covtype, class 2 against the rest: 464,809 rows to train on")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", fontsize=8)
    figure.savefig(path, dpi=120)


def report(summary: dict[str, Any], last: float, results: dict[str, dict[str, Any]]) -> str:
    """The results as a Markdown table."""
    lines = ["| | fit | test accuracy | SVs | peak memory |", "| --- | --- | --- | --- | --- |"]

    def line(name: str, result: dict[str, Any]) -> str:
        if "failed" in result:
            return f"| {name} | {result['failed']} | | | |"
        support = "" if result["n_support"] is None else f"{result['n_support']:,}"
        return (
            f"| {name} | {result['seconds']:.0f} s | {100 * result['accuracy']:.2f} % | {support} "
            f"| {result['peak_bytes'] / 2**20:,.0f} MiB |"
        )

    ours = {
        "seconds": summary["train_seconds"],
        "accuracy": last,
        "n_support": summary["n_support"],
        "peak_bytes": summary["peak_rss_bytes"],
    }
    return "\n".join([*lines, line("**bigsvm**", ours), *(line(*one) for one in results.items())])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.benchmarks.covtype", description=__doc__.splitlines()[0]
    )
    parser.add_argument("run", type=Path, metavar="RUN_DIR", help="a finished, evaluated run")
    parser.add_argument("--out", type=Path, default=Path("bench-covtype"), metavar="DIR")
    parser.add_argument("--limit", type=float, default=3600, metavar="SECONDS", help="for a peer")
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=PEERS, metavar="NAME")
    parser.add_argument("--fit", choices=PEERS, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.fit:
        print(json.dumps(fit(asked.run, asked.fit)))
        return 0
    if not (asked.run / "evaluation.csv").exists():
        parser.error(f"{asked.run}: no evaluation.csv; run python -m bigsvm.evaluate {asked.run}")
    asked.out.mkdir(parents=True, exist_ok=True)
    file = asked.out / "results.json"
    results = json.loads(file.read_text()) if file.exists() else {}
    for name in asked.peers:
        if name not in results:
            results[name] = fitted_within(asked.run, name, asked.limit)
            file.write_text(json.dumps(results, indent=1) + "\n")
            print(f"{name}: {results[name]}", flush=True)
    ours = curve(asked.run)
    draw(asked.out / "covtype.png", ours, results)
    summary = json.loads((asked.run / "summary.json").read_text())
    print(f"\n{machine(2)}\n\n{report(summary, ours[-1][1], results)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
