"""One fold of a cross-validation: every algorithm with every C, on a matrix all folds share."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bigsvm.config import normalized_C
from bigsvm.core.errors import UserError
from bigsvm.core.stop_rule import StopRule
from bigsvm.kernels import Kernel
from bigsvm.models.curves import average_precision
from bigsvm.models.scores import auc
from bigsvm.solvers.whole_matrix import OVERFLOWED, solve

# What is known of each training, as whole numbers: arrays (algorithm, C).
COUNTS = ("right_negative", "right_positive", "support", "working", "iterations", "status")
# And how well the decision values of the fold are ordered, as float64.
ORDERS = ("auc", "average_precision")
FoldResult = dict[str, np.ndarray]


class FoldTask(NamedTuple):
    """The least that is computed, and saved, at once: a fold under one kernel."""

    kernel: int
    fold: int


@dataclass(frozen=True)
class Grid:
    """What is asked of every fold.

    Attributes
    ----------
    kernels : tuple of Kernel
        One for each sigma.
    C, algorithms : tuple
    stop_rule, max_iterations
        Of every training.
    normalized_by : int or None
        The number of features, where every C is a normalized one (see `normalized_C`).
    intercept : float
        The b0 added to the kernel.
    """

    kernels: tuple[Kernel, ...]
    C: tuple[float, ...]
    algorithms: tuple[str, ...]
    stop_rule: StopRule
    max_iterations: int
    normalized_by: int | None = None
    intercept: float = 0.0

    def plain_C(self, rows: int) -> tuple[float, ...]:
        """The C of the formulas, for a training on so many rows."""
        if self.normalized_by is None:
            return self.C
        return tuple(normalized_C(C, rows, self.normalized_by) for C in self.C)


@dataclass(frozen=True)
class Split:
    """Patterns, and how they are divided.

    Attributes
    ----------
    y : (n,) int8
    fold_of : (n,) int64
    initial : tuple of int
        For each fold the pattern that trainings on all others start from.
    sample_weight : (n,) float64 or None
        Factors of C.
    class_weight : tuple of (2,) float64, or None
        For each fold the factors of C of the classes -1 and +1, in trainings on all others.
    """

    y: np.ndarray
    fold_of: np.ndarray
    initial: tuple[int, ...]
    sample_weight: np.ndarray | None = None
    class_weight: tuple[np.ndarray, ...] | None = None

    def C_of_each(self, C: tuple[float, ...], fold: int) -> np.ndarray:
        """The C of each pattern in trainings on all folds but one, (len(C), n)."""
        # In this order, so that the bits are those of `read_weights`.
        of_each = np.repeat(np.array(C, np.float64)[:, None], len(self.y), axis=1)
        if self.sample_weight is not None:
            of_each *= self.sample_weight
        if self.class_weight is not None:
            of_each *= self.class_weight[fold][(self.y > 0).astype(int)]
        return of_each


def validate_fold(
    matrix: np.ndarray, split: Split, fold: int, grid: Grid, stop: np.ndarray | None = None
) -> FoldResult:
    """Train on all folds but one, and count what the models get right of that one.

    Every pattern of that one counts the same there, whatever its weight in the trainings: so does
    `evaluate`. A training that `stop` cut short has the status STOPPED. Holds no lock: threads may
    each have a fold.
    """
    held_out = split.fold_of == fold
    positive = held_out & (split.y > 0)
    negative = held_out & (split.y < 0)
    C = grid.plain_C(int(np.count_nonzero(~held_out)))
    rows, orders = [], []
    for algorithm in grid.algorithms:
        found = solve(
            matrix, split.y, split.C_of_each(C, fold), algorithm, grid.stop_rule,
            grid.max_iterations, split.initial[fold], held_out, stop, grid.intercept,
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
    """A training whose numbers left the range of floating point is a mistake of the grid."""
    for algorithm, C in np.argwhere(result["status"] == OVERFLOWED)[:1]:
        kernel = grid.kernels[task.kernel]
        width = f", {kernel.name} kernel with gamma = {kernel.gamma:g}"
        raise UserError(
            f"tune: no step can be taken at C = {grid.C[C]:g}{width} ({grid.algorithms[algorithm]}"
            "); kernel values leave the range of float32 or the tolerance that of float64: scale "
            "the data (data.prepare.scaling), raise solver.tolerance or leave out this C"
        )
