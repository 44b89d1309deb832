"""With and without an intercept: python -m scripts.benchmarks.intercept [--sets german heart ...]

Trains each set with the real command, and prints accuracy and support vectors: of the small sets
the mean over ten splits, by seed. They need BIGSVM_DATA, or the network.
"""

import argparse
import contextlib
import io
import json
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml

from bigsvm.train import main as train


class Case(NamedTuple):
    """How a set is prepared; C and kernel, rbf and linear; and how many splits are averaged."""

    prepare: dict
    rbf: tuple[float, float]
    linear: float
    splits: int


SETS = {
    "ijcnn1": Case({}, (16, 1.0), 1, 1),
    "magic": Case({"scaling": "standard", "test_rows": 6000}, (10, 1.5), 1, 1),
    "german": Case({"scaling": "standard", "test_fraction": 0.3}, (1, 4.0), 1, 10),
    "heart": Case({"scaling": "standard", "test_fraction": 0.3}, (1, 4.0), 1, 10),
}


def trained(
    name: str, kernel: str, intercept: float, seed: int, algorithm: str, folder: Path
) -> dict:
    """The summary of one training."""
    case = SETS[name]
    C, sigma = case.rbf
    model = {"C": C, "kernel": {"name": "rbf", "sigma": sigma}}
    if kernel == "linear":
        model = {"C": case.linear, "kernel": {"name": "linear"}}
    config = {
        "data": {"source": name, "prepare": case.prepare | {"seed": seed}},
        "model": {"algorithm": algorithm, "intercept": intercept, **model},
        # The values of a linear kernel are larger, and so are those of its gap.
        "solver": {
            "absolute_tolerance": 1e-4 if kernel == "linear" else 1e-5,
            "max_iterations": 200_000,
        },
        "run": {"snapshot_every": 10**9},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    run = folder / f"{name}-{kernel}-{intercept:g}-{seed}"
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        train([str(folder / "config.yaml"), "--run-dir", str(run)])
    return json.loads((run / "summary.json").read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--kernels", nargs="+", default=["rbf", "linear"])
    parser.add_argument("--intercepts", nargs="+", type=float, default=[0.0, 1.0])
    parser.add_argument("--algorithm", default="mfw", choices=["fw", "mfw"])
    options = parser.parse_args()
    print("| set, kernel | intercept | test accuracy | support vectors | iterations |")
    print("| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.sets:
            for kernel in options.kernels:
                for intercept in options.intercepts:
                    runs = [
                        trained(name, kernel, intercept, seed, options.algorithm, Path(folder))
                        for seed in range(SETS[name].splits)
                    ]
                    means = {
                        key: np.mean([run[key] for run in runs])
                        for key in ("accuracy", "n_support", "iterations")
                    }
                    unfinished = {run["status"] for run in runs} - {"converged"}
                    print(
                        f"| {name}, {kernel} | {intercept:g} | {100 * means['accuracy']:.2f} % | "
                        f"{means['n_support']:,.0f} | {means['iterations']:,.0f} |"
                        + (f" ({', '.join(unfinished)})" if unfinished else ""),
                        flush=True,
                    )


if __name__ == "__main__":
    main()
