"""The table of a tuning: a row per algorithm, sigma and C, aggregated over the folds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bigsvm.files.atomic import write_csv
from bigsvm.solvers.precomputed import CONVERGED
from bigsvm.tuning.cross_validation import FoldResult, FoldTask, Grid, Split

QUANTITIES = (
    "accuracy",
    "balanced_accuracy",
    "support",
    "working",
    "iterations",
    "f1",
    "auc",
    "average_precision",
)
_STATISTICS: dict[str, Callable[[np.ndarray], float]] = {
    "mean": np.mean,
    "std": np.std,
    "min": np.min,
    "max": np.max,
}
COLUMNS = (
    "algorithm", "sigma", "C",
    *(f"{quantity}_{statistic}" for quantity in QUANTITIES for statistic in _STATISTICS),
    "converged", "folds",
)  # fmt: skip


@dataclass(frozen=True)
class Point:
    """One algorithm with one C and sigma.

    Attributes
    ----------
    algorithm : str
    sigma : float or None
        None for a kernel without a width.
    C : float
    values : dict
        For each of QUANTITIES one number per fold.
    converged : int
        The number of folds in which the training converged.
    """

    algorithm: str
    sigma: float | None
    C: float
    values: Mapping[str, np.ndarray]
    converged: int

    def mean(self, quantity: str) -> float:
        """The mean over the folds."""
        return float(np.mean(self.values[quantity]))

    @property
    def row(self) -> list[object]:
        """The COLUMNS of tune.csv; std is the population standard deviation over the folds."""
        return [
            self.algorithm,
            self.sigma,
            self.C,
            *(
                float(function(self.values[quantity]))
                for quantity in QUANTITIES
                for function in _STATISTICS.values()
            ),
            self.converged,
            len(self.values["accuracy"]),
        ]


def points_of(
    found: Mapping[FoldTask, FoldResult], split: Split, grid: Grid, sigmas: Sequence[float | None]
) -> list[Point]:
    """The table, in the order of the grid."""
    folds = range(len(split.initial))
    sizes = np.array(
        [[np.sum((split.fold_of == fold) & (split.y == code)) for code in split.codes]
         for fold in folds]
    )  # fmt: skip
    points = []
    for a, algorithm in enumerate(grid.algorithms):
        for k, sigma in enumerate(sigmas):
            tasks = [found[FoldTask(k, fold)] for fold in folds]
            for c, C in enumerate(grid.C):
                of_point = {
                    name: np.array([task[name][a, c] for task in tasks]) for name in tasks[0]
                }
                right = of_point["right"]
                f1 = 2 * right / (of_point["chosen"] + sizes)
                values = {
                    "accuracy": right.sum(1) / sizes.sum(1),
                    "balanced_accuracy": (right / sizes).sum(1) / sizes.shape[1],
                    "f1": f1[:, 1] if f1.shape[1] == 2 else f1.mean(1),
                    **{name: of_point[name] for name in QUANTITIES if name in of_point},
                }
                converged = int(np.sum(of_point["status"] == CONVERGED))
                points.append(Point(algorithm, sigma, C, values, converged))
    return points


def ranked(points: Sequence[Point], metric: str) -> list[Point]:
    """Sort the points, best first.

    Ties go to fewer support vectors, which predict faster; then to the smoother model, with the
    smaller C and the larger sigma.
    """
    return sorted(
        points,
        key=lambda point: (
            -round(point.mean(metric), 12),  # equal scores may differ by rounding
            point.mean("support"),
            point.C,
            -(point.sigma or 0.0),
        ),
    )


def write_table(path: Path, points: Sequence[Point]) -> None:
    """Write tune.csv."""
    write_csv(path, [COLUMNS, *(point.row for point in points)])


# Metrics that have a column of their own only if points are ranked by them.
_NAMES = {"f1": "F1", "auc": "AUC", "average_precision": "av. prec."}


def heading(metric: str) -> str:
    """The heading of lines, with the metric that they are ordered by."""
    return (
        f"{'C':>10}{'sigma':>10}{f'{_NAMES[metric]:>11}' if metric in _NAMES else ''}"
        f"{'accuracy':>11}{'+-':>8}{'balanced':>11}"
        f"{'support':>10}{'working':>10}{'iterations':>12}  converged"
    )


def line(point: Point, metric: str) -> str:
    """One point as text, aligned under `heading`."""
    spread = 100 * float(np.std(point.values["accuracy"]))
    return (
        f"{point.C:>10g}{'-' if point.sigma is None else f'{point.sigma:g}':>10}"
        f"{f'{100 * point.mean(metric):>9.2f} %' if metric in _NAMES else ''}"
        f"{100 * point.mean('accuracy'):>9.2f} %{spread:>8.2f}"
        f"{100 * point.mean('balanced_accuracy'):>9.2f} %"
        f"{point.mean('support'):>10,.1f}{point.mean('working'):>10,.1f}"
        f"{point.mean('iterations'):>12,.0f}  "
        f"{point.converged} of {len(point.values['accuracy'])}"
    )


def edges_reached(best: Point, C: Sequence[float], sigmas: Sequence[float | None]) -> list[str]:
    """The keys whose best value is the smallest or largest one tried."""
    at_edge = []
    widths = [sigma for sigma in sigmas if sigma is not None]
    for key, value, tried in (("C", best.C, list(C)), ("sigma", best.sigma, widths)):
        if len(tried) > 1 and value in (min(tried), max(tried)):
            at_edge.append(key)
    return at_edge
