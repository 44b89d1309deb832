"""What the paper says: its tables, read from published.csv and published_datasets.csv.

Typed from the LaTeX of Alaiz and Suykens, *Modified Frank-Wolfe Algorithm for Enhanced Sparsity in
Support Vector Machine Classifiers*. `rank` is the shade of a cell there: 1 the best group of models
without significant differences, 3 the worst, 2 what is in between.
"""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
SMALL = (
    "australian", "breast-cancer", "diabetes", "german", "heart", "ionosphere", "iris", "mushrooms",
    "sonar",
)  # fmt: skip
MODELS = ("SVM", "I-SVM", "F-I-SVM")
# SVM is trained by Frank-Wolfe, the two others by the modified method; the third has C = 1.
ALGORITHMS = {"SVM": "fw", "I-SVM": "mfw", "F-I-SVM": "mfw"}
METRICS = {
    "accuracy_percent": "Accuracy (%)",
    "support_vectors": "Support vectors",
    "iterations": "Iterations",
}
KERNELS = {"lin": "linear", "rbf": "RBF"}


@dataclass(frozen=True)
class Cell:
    """One cell of a table: a mean over repetitions, and where there is one deviation and rank."""

    mean: float
    std: float | None = None
    rank: int | None = None
    repetitions: int = 10


@cache
def cells() -> dict[tuple[str, str, str, str, str], Cell]:
    """Every cell, by table, data set, kernel, model and metric."""
    with (HERE / "published.csv").open() as file:
        return {
            (row["table"], row["dataset"], row["kernel"], row["model"], row["metric"]): Cell(
                float(row["mean"]),
                float(row["std"]) if row["std"] else None,
                int(row["rank"]) if row["rank"] else None,
            )
            for row in csv.DictReader(file)
        }


@dataclass(frozen=True)
class Size:
    """A line of the paper's table of data sets."""

    train: int
    test: int
    dimensions: int
    majority_percent: float


@cache
def sizes() -> dict[str, Size]:
    """The table of data sets."""
    with (HERE / "published_datasets.csv").open() as file:
        return {
            row["dataset"]: Size(
                int(row["train_size"]),
                int(row["test_size"]),
                int(row["dimensions"]),
                float(row["majority_percent"]),
            )
            for row in csv.DictReader(file)
        }
