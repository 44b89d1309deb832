"""One fold of a cross-validation: every algorithm with every C, on a matrix all folds share."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bigsvm.config import normalized_C
from bigsvm.errors import UserError
from bigsvm.kernels import Kernel
from bigsvm.whole_matrix import OVERFLOWED, solve

# What is known of each training, as whole numbers: arrays (algorithm, C).
MEASURED = ("right_negative", "right_positive", "support", "working", "iterations", "status")
Measures = dict[str, np.ndarray]


class Unit(NamedTuple):
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
    tolerance, max_iterations
        Of every training.
    normalized_by : int or None
        The number of features, where every C is a normalized one (see `normalized_C`).
    """

    kernels: tuple[Kernel, ...]
    C: tuple[float, ...]
    algorithms: tuple[str, ...]
    tolerance: float
    max_iterations: int
    normalized_by: int | None = None

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
    """

    y: np.ndarray
    fold_of: np.ndarray
    initial: tuple[int, ...]


def validate_fold(
    matrix: np.ndarray, split: Split, fold: int, grid: Grid, stop: np.ndarray | None = None
) -> Measures:
    """Train on all folds but one, and count what the models get right of that one.

    A training that `stop` cut short has the status STOPPED. Holds no lock: threads may each have
    a fold.
    """
    held_out = split.fold_of == fold
    positive = held_out & (split.y > 0)
    negative = held_out & (split.y < 0)
    C = grid.plain_C(int(np.count_nonzero(~held_out)))
    rows = []
    for algorithm in grid.algorithms:
        found = solve(
            matrix, split.y, C, algorithm, grid.tolerance, grid.max_iterations,
            split.initial[fold], held_out, stop,
        )  # fmt: skip
        chosen = found.decisions >= 0
        right = (~chosen[:, negative]).sum(1), chosen[:, positive].sum(1)
        rows.append((*right, found.support, found.working, found.iterations, found.status))
    return {
        name: np.array([row[place] for row in rows], np.int64)
        for place, name in enumerate(MEASURED)
    }


def refuse_overflow(measures: Measures, unit: Unit, grid: Grid) -> None:
    """A training whose numbers left the range of floating point is a mistake of the grid."""
    for algorithm, C in np.argwhere(measures["status"] == OVERFLOWED)[:1]:
        kernel = grid.kernels[unit.kernel]
        width = f", {kernel.name} kernel with gamma = {kernel.gamma:g}"
        raise UserError(
            f"tune: no step can be taken at C = {grid.C[C]:g}{width} ({grid.algorithms[algorithm]}"
            "); kernel values leave the range of float32 or the tolerance that of float64: scale "
            "the data (data.prepare.scaling), raise solver.tolerance or leave out this C"
        )
