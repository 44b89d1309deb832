"""More than two classes against scikit-learn's SVC, and what sharing the kernel values saves.

    python -m scripts.benchmarks.classes [--splits 10] [--iris iris.data]

For digits and iris, over several splits (half of the rows to test): the test accuracy of both with
the same kernel and C, and the kernel values that bigsvm computes for all classes together and one
class after the other.
"""

import argparse
import csv
import os
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.svm import SVC

from bigsvm.backends.in_memory import InMemoryBackend
from bigsvm.core.arrays import RowChunks
from bigsvm.core.labels import one_vs_rest_signs
from bigsvm.core.stop_rule import StopRule
from bigsvm.estimator.fit import FitOptions, fit_classes
from bigsvm.kernels import Kernel, block_of, products
from bigsvm.solvers.solve import Monitor


class Counting(InMemoryBackend):
    """Counts the kernel values it computes."""

    values = 0

    def columns(self, rows: np.ndarray, out: np.ndarray, slots: np.ndarray) -> None:
        self.values += len(rows) * self.n
        super().columns(rows, out, slots)

    def matvec(self, rows: np.ndarray | RowChunks, coef: np.ndarray) -> np.ndarray:
        self.values += rows.shape[0] * self.n
        return super().matvec(rows, coef)


def iris(path: Path) -> tuple[np.ndarray, np.ndarray]:
    with path.open() as file:
        lines = [line for line in csv.reader(file) if line]
    _, y = np.unique([line[-1] for line in lines], return_inverse=True)
    return np.array([line[:-1] for line in lines], float), y


def compare(name: str, x: np.ndarray, y: np.ndarray, C: float, gamma: float, splits: int) -> None:
    """Print a line."""
    count = int(y.max()) + 1
    kernel = Kernel("rbf", gamma)
    options = FitOptions(kernel, C, "mfw", "exact", StopRule(absolute=1e-5), 2**30, 0)
    ours, theirs, support, together, apart = [], [], [], 0, 0
    for seed in range(splits):
        order = np.random.default_rng(seed).permutation(len(y))
        train, test = np.split(order, [len(y) - len(y) // 2])
        mean, spread = x[train].mean(axis=0), x[train].std(axis=0)
        scaled = ((x - mean) / np.where(spread > 0, spread, 1)).astype(np.float32)
        svc = SVC(C=C, gamma=gamma).fit(scaled[train], y[train])
        theirs.append(svc.score(scaled[test], y[test]))
        backend = Counting(scaled[train], kernel)
        signs = [one_vs_rest_signs(y[train], k) for k in range(count)]
        fits = fit_classes(backend, signs, options, Monitor())
        together += backend.values
        coef = np.stack([fit.coef for fit in fits], axis=1)
        decision = np.zeros((count, len(test)))
        products(kernel, block_of(scaled[test]), scaled[train], coef, decision)
        ours.append(np.mean(decision.argmax(axis=0) == y[test]))
        support.append((np.count_nonzero(coef.any(axis=1)), len(svc.support_)))
        for of_class in signs:
            alone = Counting(scaled[train], kernel)
            fit_classes(alone, [of_class], options, Monitor())
            apart += alone.values
    mine, its = np.mean(support, axis=0)
    print(
        f"{name} ({len(y) - len(y) // 2} to train, {count} classes): accuracy "
        f"{100 * np.mean(ours):.2f} %, SVC {100 * np.mean(theirs):.2f} %; support vectors "
        f"{mine:.0f}, SVC {its:.0f}; kernel values {together / splits:.3g} together, "
        f"{apart / splits:.3g} one class after the other ({apart / together:.1f} times as many)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=10)
    folder = Path(os.environ.get("BIGSVM_DATA", "."))
    parser.add_argument("--iris", type=Path, default=folder / "iris.data")
    arguments = parser.parse_args()
    x, y = load_digits(return_X_y=True)
    compare("digits", x, y, 10.0, 0.01, arguments.splits)
    if arguments.iris.exists():
        compare("iris", *iris(arguments.iris), 10.0, 0.25, arguments.splits)


if __name__ == "__main__":
    main()
