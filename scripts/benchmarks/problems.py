"""The problems of the robustness benchmark: real and synthetic data sets, several C and gamma each.

A problem is a training set and a test set, already scaled, with the C of the SVM and the gamma of
its RBF kernel. Real data sets are read from the folder named by ``BIGSVM_DATA``. All of them are
public files under their usual names; ``elec.csv`` is the electricity market of New South Wales with
a header and the label in the column ``target``.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # X, y, X_test, y_test


@dataclass(frozen=True)
class Problem:
    """A line of the benchmark's table.

    Attributes
    ----------
    data : str
        A key of `DATA_SETS`.
    C : float
    gamma : float
        Of the kernel ``exp(-gamma |x - z|^2)``.
    """

    data: str
    C: float
    gamma: float

    @property
    def name(self) -> str:
        return f"{self.data} C={self.C:g} gamma={self.gamma:g}"

    def load(self) -> Split:
        """The training and the test set: X, y, X_test, y_test; float32 rows, labels -1 and +1."""
        return DATA_SETS[self.data]()


def select(problems: Sequence[Problem], substrings: Sequence[str]) -> list[Problem]:
    """Return the problems whose name contains any of the substrings; all, without substrings."""
    lower = [text.lower() for text in substrings] or [""]
    return [p for p in problems if any(text in p.name.lower() for text in lower)]


def rbf_gamma(sigma: float) -> float:
    """Return the gamma that corresponds to the kernel width sigma."""
    return 1 / (2 * sigma**2)


def _file(name: str) -> Path:
    folder = os.environ.get("BIGSVM_DATA")
    if not folder:
        raise FileNotFoundError("set BIGSVM_DATA to the folder of real data sets")
    return Path(folder, name)


def _split(X: np.ndarray, y: np.ndarray, n_train: int, n_test: int | None = None) -> Split:
    order = np.random.default_rng(0).permutation(len(y))
    train, test = np.split(order[: n_train + (n_test or len(y))], [n_train])
    return X[train], y[train], X[test], y[test]


def _standardize(split: Split, columns: slice = slice(None), clip: float = np.inf) -> Split:
    X, y, X_test, y_test = split
    X, X_test = X.astype(np.float64), X_test.astype(np.float64)
    mean, deviation = X[:, columns].mean(axis=0), X[:, columns].std(axis=0)
    deviation[deviation == 0] = 1.0
    for rows in (X, X_test):
        rows[:, columns] = np.clip((rows[:, columns] - mean) / deviation, -clip, clip)
    return X.astype(np.float32), y, X_test.astype(np.float32), y_test


def _min_max(split: Split) -> Split:
    X, y, X_test, y_test = split
    low, high = X.min(axis=0), X.max(axis=0)
    span = np.where(high > low, high - low, 1.0)
    return (
        ((X - low) / span).astype(np.float32),
        y,
        ((X_test - low) / span).astype(np.float32),
        y_test,
    )


def _covtype(n_train: int, scaling: str) -> Split:
    import pyarrow.csv as csv

    table = csv.read_csv(
        _file("covtype.data.gz"), read_options=csv.ReadOptions(autogenerate_column_names=True)
    )
    rows = np.column_stack([column.to_numpy() for column in table.columns])
    y = np.where(rows[:, -1] == 2, 1, -1).astype(np.int8)  # the largest class against the rest
    split = _split(rows[:, :-1], y, n_train, 50_000)
    # The other 44 features are indicators, and stay 0 and 1.
    return _standardize(split, slice(0, 10)) if scaling == "standard" else _min_max(split)


def _checkerboard(n: int, d: int, cells: int, flipped: float) -> Split:
    draw = np.random.default_rng(0)
    X = draw.uniform(size=(n + 20_000, d))
    y = np.where(np.floor(X * cells).sum(axis=1) % 2 == 0, 1, -1).astype(np.int8)
    y[:n][draw.uniform(size=n) < flipped] *= -1  # the test labels are clean
    return _standardize((X[:n], y[:n], X[n:], y[n:]))


def _overlapping(n: int, d: int) -> Split:
    """Two Gaussians, their centres one deviation apart."""
    draw = np.random.default_rng(0)
    y = np.where(draw.uniform(size=n + 20_000) < 0.5, 1, -1).astype(np.int8)
    centres = draw.normal(size=(2, d))
    centres /= np.linalg.norm(centres[0] - centres[1])
    X = (draw.normal(size=(len(y), d)) + centres[(y + 1) // 2]).astype(np.float32)
    return X[:n], y[:n], X[n:], y[n:]


def _isolated(n: int, d: int) -> Split:
    """Rows of a Cauchy distribution, of which many are far from all others."""
    X = np.random.default_rng(0).standard_cauchy((n + 20_000, d)).astype(np.float32)
    y = np.where(X.sum(axis=1) > 0, 1, -1).astype(np.int8)
    return X[:n], y[:n], X[n:], y[n:]


def _libsvm(train: str, test: str | None, n_train: int = 0, standardize: bool = False) -> Split:
    from sklearn.datasets import load_svmlight_file

    X, y = load_svmlight_file(str(_file(train)))
    y = np.where(y == y.max(), 1, -1).astype(np.int8)
    if test is None:
        split = _split(X.toarray(), y, n_train)
    else:
        X_test, y_test = load_svmlight_file(str(_file(test)), n_features=X.shape[1])
        y_test = np.where(y_test == y_test.max(), 1, -1).astype(np.int8)
        split = X.toarray(), y, X_test.toarray(), y_test
    if standardize:
        return _standardize(split)
    X, y, X_test, y_test = split
    return X.astype(np.float32), y, X_test.astype(np.float32), y_test


def _miniboone() -> Split:
    import zipfile

    path = _file("MiniBooNE_PID_subset.zip")
    with zipfile.ZipFile(path) as archive, archive.open("MiniBooNE_PID.txt") as text:
        signal, background = map(int, text.readline().split())
        X = np.loadtxt(text, dtype=np.float64)
    y = np.repeat(np.array([1, -1], np.int8), [signal, background])
    kept = ~(X == -999).all(axis=1)  # rows without a measurement
    return _standardize(_split(X[kept], y[kept], 60_000), clip=8)  # its features have heavy tails


def _csv(name: str, n_train: int, positive: str, header: bool = False) -> Split:
    """Read a CSV file with the label in its last column; `positive` is the label of class +1."""
    lines = _file(name).read_text().split()
    cells = [line.split(",") for line in (lines[1:] if header else lines)]
    y = np.array([1 if row[-1] == positive else -1 for row in cells], np.int8)
    X = np.array([row[:-1] for row in cells], np.float64)
    return _standardize(_split(X, y, n_train))


DATA_SETS: dict[str, Callable[[], Split]] = {
    "covtype 50k": lambda: _covtype(50_000, "standard"),
    "covtype 100k": lambda: _covtype(100_000, "standard"),
    "covtype 50k [0,1]": lambda: _covtype(50_000, "minmax"),
    "board 2-d 40x40": lambda: _checkerboard(60_000, 2, 40, 0.02),
    "board 4-d": lambda: _checkerboard(100_000, 4, 3, 0.05),
    "overlapping": lambda: _overlapping(40_000, 5),
    "isolated": lambda: _isolated(50_000, 5),
    "a9a": lambda: _libsvm("a9a", "a9a.t"),
    "elec": lambda: _csv("elec.csv", 36_312, "1", header=True),
    "miniboone": _miniboone,
    "ijcnn1": lambda: _libsvm("ijcnn1.trn.bz2", "ijcnn1.tst.bz2"),
    "magic": lambda: _csv("magic04.data", 13_020, "g"),
    "mushrooms": lambda: _libsvm("mushrooms", None, 6_000),
    "german": lambda: _libsvm("german.numer", None, 700, standardize=True),
    "diabetes": lambda: _libsvm("diabetes_scale", None, 500),
    "australian": lambda: _libsvm("australian", None, 460, standardize=True),
    "breast-cancer": lambda: _libsvm("breast-cancer_scale", None, 460),
    "heart": lambda: _libsvm("heart_scale", None, 180),
    "ionosphere": lambda: _csv("ionosphere.data", 230, "g"),
    "sonar": lambda: _csv("sonar.all-data", 140, "M"),
    "iris": lambda: _csv("iris.data", 100, "Iris-setosa"),
}

PROBLEMS = [
    Problem("covtype 50k", 10, rbf_gamma(0.7)),
    Problem("covtype 50k", 1, rbf_gamma(0.7)),
    Problem("covtype 50k", 100, rbf_gamma(2)),
    Problem("covtype 50k", 0.1, rbf_gamma(1.5)),
    Problem("covtype 50k [0,1]", 32, 32),
    Problem("covtype 100k", 1, rbf_gamma(0.7)),
    Problem("board 2-d 40x40", 10, rbf_gamma(0.05)),
    Problem("board 2-d 40x40", 1, rbf_gamma(0.1)),
    Problem("board 4-d", 1, rbf_gamma(0.3)),
    Problem("board 4-d", 10, rbf_gamma(0.5)),
    Problem("overlapping", 0.1, rbf_gamma(1)),
    Problem("overlapping", 10, rbf_gamma(1)),
    Problem("isolated", 1, rbf_gamma(0.3)),
    Problem("isolated", 10, rbf_gamma(1)),
    Problem("a9a", 1, rbf_gamma(8)),
    Problem("a9a", 32, rbf_gamma(8)),
    Problem("elec", 10, rbf_gamma(0.5)),
    Problem("elec", 100, rbf_gamma(1.2)),
    Problem("miniboone", 1, rbf_gamma(6)),
    Problem("miniboone", 10, rbf_gamma(6)),
    Problem("miniboone", 0.1, rbf_gamma(3)),
    Problem("ijcnn1", 16, rbf_gamma(1)),
    Problem("ijcnn1", 1, rbf_gamma(0.5)),
    Problem("magic", 10, rbf_gamma(1.5)),
    Problem("magic", 1000, rbf_gamma(3)),
    Problem("mushrooms", 1, rbf_gamma(3)),
    Problem("mushrooms", 100, rbf_gamma(1)),
    Problem("german", 1, rbf_gamma(4)),
    Problem("german", 100, rbf_gamma(10)),
    Problem("diabetes", 10, rbf_gamma(1)),
    Problem("diabetes", 1, rbf_gamma(0.5)),
    Problem("australian", 100, rbf_gamma(2)),
    Problem("australian", 0.1, rbf_gamma(5)),
    Problem("breast-cancer", 1, rbf_gamma(2)),
    Problem("breast-cancer", 100, rbf_gamma(0.5)),
    Problem("heart", 1, rbf_gamma(2)),
    Problem("heart", 1000, rbf_gamma(5)),
    Problem("ionosphere", 10, rbf_gamma(4)),
    Problem("ionosphere", 0.1, rbf_gamma(2)),
    Problem("sonar", 10, rbf_gamma(5)),
    Problem("sonar", 1, rbf_gamma(1)),
    Problem("iris", 1, rbf_gamma(1)),
    Problem("iris", 1000, rbf_gamma(0.2)),
]
