"""Cross-validation: the folds, and one fold under one kernel with every algorithm and every C."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bigsvm.config import normalized_C
from bigsvm.core.errors import UserError
from bigsvm.core.stop_rule import StopRule
from bigsvm.kernels import Kernel
from bigsvm.models.curves import average_precision
from bigsvm.models.scores import auc
from bigsvm.solvers.precomputed import NUMERICAL_FAILURE, Limits, solve

# The results of a fold: integer arrays (algorithm, C).
COUNTS = ("right_negative", "right_positive", "support", "working", "iterations", "status")
# And how well the decision values of the fold are ordered, as float64.
ORDERS = ("auc", "average_precision")
FoldResult = dict[str, np.ndarray]


class FoldTask(NamedTuple):
    """One fold under one kernel: the unit of computing and of saving."""

    kernel: int
    fold: int


@dataclass(frozen=True)
class Grid:
    """The trainings of every fold.

    Attributes
    ----------
    kernels : tuple of Kernel
        One per sigma.
    C, algorithms : tuple
    stop_rule, max_iterations
        The same for every training.
    normalized_by : int or None
        The number of features if every C is normalized (see `normalized_C`).
    intercept : float
        The constant added to the kernel.
    """

    kernels: tuple[Kernel, ...]
    C: tuple[float, ...]
    algorithms: tuple[str, ...]
    stop_rule: StopRule
    max_iterations: int
    normalized_by: int | None = None
    intercept: float = 0.0

    def plain_C(self, rows: int) -> tuple[float, ...]:
        """The C of the formulas for a training on `rows` rows."""
        if self.normalized_by is None:
            return self.C
        return tuple(normalized_C(C, rows, self.normalized_by) for C in self.C)


@dataclass(frozen=True)
class Split:
    """The patterns and their folds.

    Attributes
    ----------
    y : (n,) int8
    fold_of : (n,) int64
    initial : tuple of int
        For each fold the pattern that the trainings on all other folds start from.
    sample_weight : (n,) float64 or None
        Factors of C.
    class_weight : tuple of (2,) float64, or None
        For each fold the factors of C of the classes -1 and +1 in the trainings on all others.
    """

    y: np.ndarray
    fold_of: np.ndarray
    initial: tuple[int, ...]
    sample_weight: np.ndarray | None = None
    class_weight: tuple[np.ndarray, ...] | None = None

    def C_of_each(self, C: tuple[float, ...], fold: int) -> np.ndarray:
        """The C of each pattern in the trainings on all folds but one, (len(C), n)."""
        # The order of the factors is that of `read_weights`, which gives the same bits.
        of_each = np.repeat(np.array(C, np.float64)[:, None], len(self.y), axis=1)
        if self.sample_weight is not None:
            of_each *= self.sample_weight
        if self.class_weight is not None:
            of_each *= self.class_weight[fold][(self.y > 0).astype(int)]
        return of_each


def validate_fold(
    matrix: np.ndarray, split: Split, fold: int, grid: Grid, stop: np.ndarray | None = None
) -> FoldResult:
    """Train on all folds but one, and count the correct predictions on that one.

    Validation ignores weights, as `evaluate` does. A training that `stop` ended has the status
    STOPPED. Releases the GIL, so that folds run in parallel threads.
    """
    held_out = split.fold_of == fold
    positive = held_out & (split.y > 0)
    negative = held_out & (split.y < 0)
    C = grid.plain_C(int(np.count_nonzero(~held_out)))
    rows, orders = [], []
    limits = Limits(grid.stop_rule, grid.max_iterations, stop)
    for algorithm in grid.algorithms:
        found = solve(
            matrix, split.y, split.C_of_each(C, fold), algorithm, limits, split.initial[fold],
            held_out, grid.intercept,
        )  # fmt: skip
        chosen = found.decisions >= 0
        right = (~chosen[:, negative]).sum(1), chosen[:, positive].sum(1)
        rows.append((*right, found.support, found.working, found.iterations, found.status))
        signs, decisions = split.y[held_out], found.decisions[:, held_out]
        orders.append(np.transpose([orders_of(signs, of_C) for of_C in decisions]))
    counts = {
        name: np.array([row[place] for row in rows], np.int64) for place, name in enumerate(COUNTS)
    }
    return counts | {
        name: np.array([order[place] for order in orders]) for place, name in enumerate(ORDERS)
    }


def orders_of(signs: np.ndarray, decisions: np.ndarray) -> tuple[float, float]:
    """AUC and average precision of a fold; 0 where a training came to no numbers."""
    if not np.isfinite(decisions).all():
        return 0.0, 0.0
    return auc(signs, decisions), average_precision(signs, decisions)


def check_overflow(result: FoldResult, task: FoldTask, grid: Grid) -> None:
    """Raise a UserError if a training of the grid had a numerical failure."""
    for algorithm, C in np.argwhere(result["status"] == NUMERICAL_FAILURE)[:1]:
        kernel = grid.kernels[task.kernel]
        width = f", {kernel.name} kernel with gamma = {kernel.gamma:g}"
        raise UserError(
            f"tune: no step can be taken at C = {grid.C[C]:g}{width} ({grid.algorithms[algorithm]}"
            "); kernel values leave the range of float32 or the tolerance that of float64: scale "
            "the data (data.prepare.scaling), raise solver.tolerance or leave out this C"
        )


def stratified_folds(y: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """Assign each pattern to a fold: (n,) int64, counted from 0.

    Each class is shuffled and dealt out in turn; the second class continues at the fold where the
    first one ended, so that the sizes of the folds differ by at most one.
    """
    rng = np.random.default_rng(seed)
    fold_of = np.empty(len(y), np.int64)
    assigned = 0
    for sign in (-1, 1):
        index = np.flatnonzero(y == sign)
        if len(index) < folds:
            raise UserError(
                f"tune.folds = {folds}: the smaller class has {len(index)} patterns; "
                + (f"take at most {len(index)} folds" if len(index) > 1 else "that is too few")
            )
        fold_of[rng.permutation(index)] = (assigned + np.arange(len(index))) % folds
        assigned += len(index)
    return fold_of


def stratified_sample(y: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Draw `count` patterns in the proportions of the classes; all of them if there are fewer.

    Each class keeps at least two patterns if it has them. In ascending order.
    """
    if count >= len(y):
        return np.arange(len(y))
    rng = np.random.default_rng(seed)
    negative, positive = np.flatnonzero(y < 0), np.flatnonzero(y > 0)
    least, most = max(2, count - len(negative)), min(len(positive), count - 2)
    share = min(max(round(count * len(positive) / len(y)), least), most)
    chosen = [
        rng.choice(negative, count - share, replace=False),
        rng.choice(positive, share, replace=False),
    ]
    return np.sort(np.concatenate(chosen))
