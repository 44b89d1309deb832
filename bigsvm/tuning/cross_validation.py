"""Cross-validation: the folds, and one fold under one kernel with every algorithm and every C."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bigsvm.config import normalized_C
from bigsvm.core.errors import UserError
from bigsvm.core.stop_rule import StopRule
from bigsvm.kernels import Kernel
from bigsvm.models.scores import auc, average_precision
from bigsvm.solvers.precomputed import NUMERICAL_FAILURE, Limits, Solutions, solve

# The results of a fold, arrays (algorithm, C, ...): integers for each class,
CLASS_COUNTS = ("right", "chosen")
# integers for each training,
COUNTS = ("support", "working", "iterations", "status")
# and how well the decision values rank the rows of the fold, as float64.
RANKINGS = ("auc", "average_precision")
FoldResult = dict[str, np.ndarray]


class FoldTask(NamedTuple):
    """One fold under one kernel: the unit of computing and of saving."""

    kernel: int
    fold: int
    C: tuple[float, ...] = ()  # those to compute, where others are done; none: all of the grid


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

    def plain_C(self, C: tuple[float, ...], rows: int) -> tuple[float, ...]:
        """The C of the optimisation problem for trainings on `rows` rows."""
        if self.normalized_by is None:
            return C
        return tuple(normalized_C(value, rows, self.normalized_by) for value in C)


@dataclass(frozen=True)
class Split:
    """The patterns and their folds.

    Attributes
    ----------
    y : (n,) int8 or int32
        Codes of the classes: -1 and 1 if they are two.
    fold_of : (n,) int64
    initial : tuple of int
        For each fold the pattern that the trainings on all other folds start from.
    sample_weight : (n,) float64 or None
        Factors of C.
    class_weight : tuple of (classes,) float64, or None
        For each fold the factors of C of the classes in the trainings on all others.
    """

    y: np.ndarray
    fold_of: np.ndarray
    initial: tuple[int, ...]
    sample_weight: np.ndarray | None = None
    class_weight: tuple[np.ndarray, ...] | None = None

    @property
    def codes(self) -> np.ndarray:
        """The codes of the classes, in order."""
        return np.unique(self.y)

    @property
    def signs(self) -> list[np.ndarray]:
        """The labels -1 and +1 of each training: one, or one for each class against the rest."""
        if len(self.codes) == 2:
            return [self.y]
        return [np.where(self.y == code, 1, -1).astype(np.int8) for code in self.codes]

    def C_per_row(self, C: tuple[float, ...], fold: int) -> np.ndarray:
        """The C of each pattern in the trainings on all folds but one, (len(C), n)."""
        # Multiplied in the same order as in `read_weights`, which gives the same bits.
        C_per_row = np.repeat(np.array(C, np.float64)[:, None], len(self.y), axis=1)
        if self.sample_weight is not None:
            C_per_row *= self.sample_weight
        if self.class_weight is not None:
            C_per_row *= self.class_weight[fold][np.searchsorted(self.codes, self.y)]
        return C_per_row


def validate_fold(
    matrix: np.ndarray, split: Split, task: FoldTask, grid: Grid, stop: np.ndarray | None = None
) -> FoldResult:
    """Train on all folds but one, and count the correct predictions on that one.

    More than two classes are each trained against the rest; the largest decision value decides.
    Validation ignores weights, as `evaluate` does. A training that `stop` ended has the status
    STOPPED. Releases the GIL, so that folds run in parallel threads.
    """
    held_out = split.fold_of == task.fold
    C = grid.plain_C(task.C or grid.C, int(np.count_nonzero(~held_out)))
    C_per_row = split.C_per_row(C, task.fold)
    limits = Limits(grid.stop_rule, grid.max_iterations, stop)
    places = np.searchsorted(split.codes, split.y[held_out])
    results: list[FoldResult] = []
    for algorithm in grid.algorithms:
        decisions, rankings, support, totals = [], [], False, []
        for signs in split.signs:
            found = solve(
                matrix, signs, C_per_row, algorithm, limits, split.initial[task.fold], held_out,
                grid.intercept,
            )  # fmt: skip
            decisions.append(found.decisions[:, held_out])
            if len(split.codes) > 2:  # in units of the margin of each, as a model has them
                decisions[-1] /= _margins(found, signs, C_per_row)[:, None]
            rankings.append([ranking_scores(signs[held_out], of_C) for of_C in decisions[-1]])
            support |= found.alpha != 0
            totals.append((found.working, found.iterations, found.status))
        working, iterations, status = zip(*totals, strict=True)
        trained = {
            "support": np.count_nonzero(support, axis=1),
            "working": np.sum(working, axis=0),
            "iterations": np.sum(iterations, axis=0),
            "status": np.max(status, axis=0),
        }
        ranked = dict(zip(RANKINGS, np.mean(rankings, axis=0).T, strict=True))
        results.append(_count(np.array(decisions), places, len(split.codes)) | trained | ranked)
    return {name: np.array([of_one[name] for of_one in results]) for name in results[0]}


def _margins(found: Solutions, signs: np.ndarray, C: np.ndarray) -> np.ndarray:
    """The margin a'Qa of each solution."""
    regularized = np.divide(found.alpha, C, out=np.zeros_like(C), where=found.alpha != 0)
    margins: np.ndarray = (found.alpha * (signs * found.decisions + regularized)).sum(axis=1)
    return margins


def _count(decisions: np.ndarray, places: np.ndarray, classes: int) -> dict[str, np.ndarray]:
    """The rows of each class that are predicted correctly, and those assigned to it: (C, classes).

    `decisions` is (trainings, C, rows); `places` are the positions of the rows' classes.
    """
    chosen = decisions[0] >= 0 if len(decisions) == 1 else decisions.argmax(axis=0)
    return {
        "right": np.array(
            [np.bincount(places[of_C == places], minlength=classes) for of_C in chosen]
        ),
        "chosen": np.array([np.bincount(of_C, minlength=classes) for of_C in chosen]),
    }


def ranking_scores(signs: np.ndarray, decisions: np.ndarray) -> tuple[float, float]:
    """AUC and average precision of a fold; 0 if a training failed numerically."""
    if not np.isfinite(decisions).all():
        return 0.0, 0.0
    return auc(signs, decisions), average_precision(signs, decisions)


def check_overflow(result: FoldResult, task: FoldTask, grid: Grid) -> None:
    """Raise a UserError if a training of the grid had a numerical failure."""
    for algorithm, C in np.argwhere(result["status"] == NUMERICAL_FAILURE)[:1]:
        kernel = grid.kernels[task.kernel]
        width = f", {kernel.name} kernel with gamma = {kernel.gamma:g}"
        at = (task.C or grid.C)[C]
        raise UserError(
            f"tune: no step can be taken at C = {at:g}{width} ({grid.algorithms[algorithm]}"
            "); kernel values leave the range of float32 or the tolerance that of float64: scale "
            "the data (data.prepare.scaling), raise solver.tolerance or leave out this C"
        )


def stratified_folds(y: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """Assign each pattern to a fold: (n,) int64, counted from 0.

    Each class is shuffled and dealt out in turn; the next class continues at the fold where the
    one before ended, so that the sizes of the folds differ by at most one.
    """
    rng = np.random.default_rng(seed)
    fold_of = np.empty(len(y), np.int64)
    assigned = 0
    for code in np.unique(y):
        index = np.flatnonzero(y == code)
        if len(index) < folds:
            raise UserError(
                f"tune.folds = {folds}: the smallest class has {len(index)} patterns; "
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
    codes, sizes = np.unique(y, return_counts=True)
    shares = _shares(count, sizes)
    chosen = [
        rng.choice(np.flatnonzero(y == code), share, replace=False)
        for code, share in zip(codes, shares, strict=True)
    ]
    return np.sort(np.concatenate(chosen))


def _shares(count: int, sizes: np.ndarray) -> np.ndarray:
    """How many of `count` patterns each class has, in proportion; at least two if it has them."""
    shares = np.empty(len(sizes), np.int64)
    for k in range(len(sizes) - 1, -1, -1):  # the first class takes what the others leave
        others = sizes[:k]
        least = max(min(2, sizes[k]), count - others.sum())
        most = min(sizes[k], count - np.minimum(others, 2).sum()) if k else count
        share = count if k == 0 else round(count * sizes[k] / sizes[: k + 1].sum())
        shares[k] = min(max(share, least), most)
        count -= shares[k]
    return shares
