"""The three models on one partition: tuned by cross-validation, trained, and tested.

Every C here is normalized as the paper's: C d / n in the formulas, with n training patterns of d
features (`fixed_c.py` tells how that was found).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigsvm.config import normalized_C
from bigsvm.core.stop_rule import StopRule
from bigsvm.kernels import Kernel, block_of, products
from bigsvm.solvers.precomputed import Limits, kernel_matrix, solve
from bigsvm.tuning.cross_validation import (
    FoldTask,
    Grid,
    Split,
    stratified_folds,
    validate_fold,
)
from scripts.paper.partitions import Rows, partition
from scripts.paper.published import ALGORITHMS, MODELS

STOP_RULE = StopRule(absolute=1e-5)  # the paper's
FOLDS = 10
C_GRID = tuple(10.0**power for power in range(-5, 6))
SIGMA_GRID = (0.25, 1.0, 4.0, 16.0)  # the paper does not tell its own
BOTH = ("fw", "mfw")
# A large C can need millions of steps for digits of the gap that no fold is large enough to see.
MOST_ITERATIONS_TUNING = 50_000
MOST_ITERATIONS = 2_000_000


def kernel_of(sigma: float | None) -> Kernel:
    """The RBF kernel, or without a width the linear one."""
    return Kernel("linear") if sigma is None else Kernel("rbf", 1 / (2 * sigma**2))


@dataclass(frozen=True)
class Validated:
    """The accuracy that a cross-validation measured: an array (sigma, fold, algorithm, C)."""

    sigmas: tuple[float | None, ...]
    C: tuple[float, ...]
    accuracy: np.ndarray

    def best(self, algorithm: str, C: Sequence[float] | None = None) -> dict[str, Any]:
        """The C and sigma with the highest mean accuracy; of equals the smallest C, then sigma.

        The paper breaks ties so, too: on iris, RBF, where everything is right, its SVM has the
        number of steps that the smallest C takes.
        """
        allowed = [place for place, value in enumerate(self.C) if C is None or value in C]
        mean = self.accuracy[:, :, BOTH.index(algorithm)].mean(axis=1)[:, allowed]
        # Rounded: equal accuracies of other folds must not differ by the order of a sum.
        at_C, at_sigma = np.unravel_index(mean.T.round(9).argmax(), mean.T.shape)
        return {
            "C": self.C[allowed[at_C]],
            "sigma": self.sigmas[at_sigma],
            "validated": round(float(mean[at_sigma, at_C]), 6),
        }


def validate(
    rows: Rows,
    sigmas: Sequence[float | None],
    C: Sequence[float] = C_GRID,
) -> Validated:
    """Cross-validate every sigma, C and algorithm on ten folds."""
    fold_of = stratified_folds(rows.y, FOLDS, seed=0)
    first = tuple(int(np.flatnonzero(fold_of != fold)[0]) for fold in range(FOLDS))
    split = Split(rows.y, fold_of, first)
    kernels = tuple(map(kernel_of, sigmas))
    grid = Grid(kernels, tuple(C), BOTH, STOP_RULE, MOST_ITERATIONS_TUNING, rows.x.shape[1])
    accuracy = []
    for kernel in kernels:
        matrix = kernel_matrix(kernel, rows.x)
        for fold in range(FOLDS):
            found = validate_fold(matrix, split, FoldTask(0, fold), grid)
            right = found["right"].sum(axis=2)
            accuracy.append(right / np.count_nonzero(fold_of == fold))
    shape = (len(sigmas), FOLDS, len(BOTH), len(C))
    return Validated(tuple(sigmas), tuple(C), np.reshape(accuracy, shape))


def trained(
    train: Rows, test: Rows, C: float, sigma: float | None, algorithm: str
) -> dict[str, Any]:
    """Accuracy on the test rows, support vectors and iterations of one model."""
    return trained_each(train, test, [C], sigma, [algorithm])[algorithm][0]


def trained_each(
    train: Rows, test: Rows, C: Sequence[float], sigma: float | None, algorithms: Sequence[str]
) -> dict[str, list[dict[str, Any]]]:
    """The same of every C, by algorithm: all of them on one kernel matrix."""
    kernel = kernel_of(sigma)
    plain = [normalized_C(value, *train.x.shape) for value in C]
    matrix = kernel_matrix(kernel, train.x)
    results = {}
    for algorithm in algorithms:
        found = solve(matrix, train.y, plain, algorithm, Limits(STOP_RULE, MOST_ITERATIONS))
        decided = np.zeros((len(C), len(test)))
        products(kernel, block_of(test.x), train.x, (found.alpha * train.y).T.copy(), decided)
        results[algorithm] = [
            {
                "accuracy_percent": round(100 * float(np.mean((of_C >= 0) == (test.y > 0))), 4),
                "support_vectors": int(found.support[place]),
                "iterations": int(found.iterations[place]),
                "converged": bool(found.converged[place]),
            }
            for place, of_C in enumerate(decided)
        ]
    return results


def first_without_error(
    rows: Rows, sigmas: Sequence[float | None], C: Sequence[float], algorithm: str
) -> dict[str, Any] | None:
    """The first C, and of that the first sigma, that gets every row of every fold right.

    Nothing can be better, so this is what `Validated.best` would choose, without most of the work:
    a point is given up at its first error.
    """
    fold_of = stratified_folds(rows.y, FOLDS, seed=0)
    matrices = {sigma: kernel_matrix(kernel_of(sigma), rows.x) for sigma in sigmas}
    for value in C:
        for sigma in sigmas:
            if _without_error(matrices[sigma], rows, fold_of, value, algorithm):
                return {"C": value, "sigma": sigma, "validated": 1.0}
    return None


def _without_error(
    matrix: np.ndarray, rows: Rows, fold_of: np.ndarray, C: float, algorithm: str
) -> bool:
    for fold in range(FOLDS):
        held_out = fold_of == fold
        taught = np.flatnonzero(~held_out)
        plain = normalized_C(C, len(taught), rows.x.shape[1])
        found = solve(
            matrix, rows.y, [plain], algorithm, Limits(STOP_RULE, MOST_ITERATIONS_TUNING),
            int(taught[0]), held_out,
        )  # fmt: skip
        if ((found.decisions[0, held_out] >= 0) != (rows.y[held_out] > 0)).any():
            return False
    return True


def repetition(
    dataset: str, kernel: str, repetition: int, sigmas: list[float], separable: bool
) -> dict[str, dict[str, Any]]:
    """The three models of one repetition, each with its own C and sigma; F-I-SVM has C = 1.

    Where the rows are known to be `separable`, a point without error is looked for first.
    """
    train, test = partition(dataset, repetition)
    widths: list[float | None] = [None] if kernel == "lin" else [*sigmas]
    grid = None
    models = {}
    for model in MODELS:
        algorithm = ALGORITHMS[model]
        C = (1.0,) if model == "F-I-SVM" else C_GRID
        best = first_without_error(train, widths, C, algorithm) if separable else None
        if best is None:
            grid = grid or validate(train, widths)
            best = grid.best(algorithm, C)
        models[model] = best | trained(train, test, best["C"], best["sigma"], algorithm)
    return models
