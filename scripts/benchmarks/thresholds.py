"""Choose the default of `model.threshold`: what a fitted one changes, snapshot by snapshot.

    python -m scripts.benchmarks.thresholds --rows 5000

Trains on a sample of each real data set, with C 1 and 10, and scores snapshots at regular
intervals on test rows, at the threshold 0 and at the fitted one. Prints, for each rule, the
accuracy and the balanced accuracy of the last model and the mean over all snapshots before it.
"""

import argparse
import csv
import sys
import tempfile
from pathlib import Path

import numpy as np

from bigsvm import cli
from scripts.benchmarks.problems import DATA_SETS, PROBLEMS

LEFT_OUT = ("board", "100k", "[0,1]")  # synthetic, or the same rows once more
TEST_ROWS = 5000
RULES = ("balanced", "accuracy")


def stores(folder: Path, rows: int, names: list[str]) -> dict[str, tuple[Path, float]]:
    """Prepare the data sets: name -> (store, gamma of the kernel)."""
    made = {}
    gammas = {problem.data: problem.gamma for problem in reversed(PROBLEMS)}
    for name in DATA_SETS:
        if any(text in name for text in LEFT_OUT):
            continue
        if names and not any(text in name for text in names):
            continue
        store = folder / f"{name.replace(' ', '-')}.zarr"
        try:
            X, y, X_test, y_test = DATA_SETS[name]()
        except FileNotFoundError:
            continue
        draw = np.random.default_rng(0)
        kept, tested = draw.permutation(len(y))[:rows], draw.permutation(len(y_test))[:TEST_ROWS]
        np.savez(folder / "train.npz", X=X[kept], y=y[kept])
        np.savez(folder / "test.npz", X=X_test[tested], y=y_test[tested])
        files = [str(folder / "train.npz"), str(store), "--test-file", str(folder / "test.npz")]
        assert cli.main(["prepare", *files, "--scaling", "none", "--quiet"]) == 0
        made[name] = store, gammas[name]
    return made


def scores(folder: Path, store: Path, gamma: float, C: float, rule: str) -> list[dict[str, float]]:
    """Train with a rule and evaluate: the lines of evaluation.csv."""
    run, config = folder / f"{store.stem}-{C:g}-{rule}", folder / "config.yaml"
    config.write_text(
        f"data: {{train: {store}, test: {store}/test}}\n"
        f"model: {{C: {C}, threshold: {rule}, kernel: {{name: rbf, gamma: {gamma}}}}}\n"
        "solver: {max_iterations: 40000, schedule: block}\nrun: {snapshot_every: 500}\n"
    )
    assert cli.main(["train", str(config), "--run-dir", str(run)]) == 0
    assert cli.main(["evaluate", str(run)]) == 0
    with (run / "evaluation.csv").open() as file:
        found = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
    for row in found:  # where no snapshot needed one, there are no such columns
        row.setdefault("accuracy_at_zero", row["accuracy"])
        row.setdefault("balanced_accuracy_at_zero", row["balanced_accuracy"])
    return found


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--only", nargs="*", default=[], help="data sets whose name contains this")
    arguments = parser.parse_args()
    keys = ("accuracy_at_zero", "accuracy", "balanced_accuracy_at_zero", "balanced_accuracy")
    print("| set, C, rule | last model: accuracy | balanced | snapshots: accuracy | balanced |")
    print("| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name, (store, gamma) in stores(folder, arguments.rows, arguments.only).items():
            for C in (1.0, 10.0):
                for rule in RULES:
                    sys.stdout.flush()
                    with (folder / "log").open("w") as log:
                        shown, sys.stdout = sys.stdout, log
                        try:
                            found = scores(folder, store, gamma, C, rule)
                        finally:
                            sys.stdout = shown
                    *before, last = found
                    means = {k: np.mean([row[k] for row in before or [last]]) for k in keys}
                    cells = [
                        f"{100 * source[a]:.1f}, {100 * source[b]:.1f}"
                        for source in (last, means)
                        for a, b in (keys[:2], keys[2:])
                    ]
                    print(f"| {name}, {C:g}, {rule} | {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
