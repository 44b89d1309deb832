"""Probabilities beside scikit-learn's: python -m scripts.benchmarks.calibration [--rows 2000]

Fits magic, a9a and ijcnn1 with `BigSVC(calibration=...)`, with CalibratedClassifierCV around BigSVC
and around SVC, and prints Brier score, log loss, expected calibration error and the calibration
curve on rows of the set that took no part. They need BIGSVM_DATA.
"""

import argparse
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_svmlight_file
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from bigsvm import BigSVC
from bigsvm.models.calibration import METHODS, Reliability, reliability_of


def magic(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    table = pd.read_csv(folder / "magic04.data", header=None)
    return table.iloc[:, :10].to_numpy(), (table[10] == "h").to_numpy().astype(int)


def a9a(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    X, y = load_svmlight_file(str(folder / "a9a"))
    return X.toarray(), (y > 0).astype(int)


def ijcnn1(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    X, y = load_svmlight_file(str(folder / "ijcnn1.trn.bz2"))
    return X.toarray(), (y > 0).astype(int)


SETS = {"magic": (magic, 10.0), "a9a": (a9a, 1.0), "ijcnn1": (ijcnn1, 10.0)}  # with C


def fitted(method: str, C: float) -> dict[str, Any]:
    """The classifiers to compare."""
    around = {"method": method, "cv": 5, "ensemble": False}
    return {
        "BigSVC(calibration)": BigSVC(C=C, calibration=method),
        "CalibratedClassifierCV(BigSVC)": CalibratedClassifierCV(BigSVC(C=C), **around),
        "CalibratedClassifierCV(SVC)": CalibratedClassifierCV(SVC(C=C), **around),
    }


def curve(found: Reliability) -> str:
    """The shares of the class at the mean probabilities, in percent."""
    points = (f"{100 * at['probability']:.0f}: {100 * at['share']:.0f}" for at in found.curve)
    return ", ".join(points)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--rows", type=int, default=2000, help="to train on; twice as many to test")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    print("| set, method | classifier | Brier score | log loss | calibration error | curve |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in options.sets:
        read, C = SETS[name]
        X, y = read(Path(os.environ["BIGSVM_DATA"]))
        chosen = np.random.default_rng(0).permutation(len(X))[: 3 * options.rows]
        X, y = X[chosen], y[chosen]
        spread = X[: options.rows].std(axis=0)
        X = (X - X[: options.rows].mean(axis=0)) / np.where(spread > 0, spread, 1.0)
        for method in METHODS:
            for label, classifier in fitted(method, C).items():
                classifier.fit(X[: options.rows], y[: options.rows])
                p = classifier.predict_proba(X[options.rows :])
                found = reliability_of(p, y[options.rows :])
                print(
                    f"| {name}, {method} | {label} | {found.brier_score:.4f} | "
                    f"{found.log_loss:.4f} | {100 * found.expected_calibration_error:.2f} % | "
                    f"{curve(found)} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
