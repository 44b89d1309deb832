"""The finished trainings of a tuning: a file for each fold under each kernel."""

from pathlib import Path
from typing import Any

import numpy as np

from bigsvm.core.errors import UserError
from bigsvm.files.checked_tensors import read_tensors, write_tensors
from bigsvm.terminal.logs import LOGGER
from bigsvm.training.checkpoint import check_same_run
from bigsvm.tuning.cross_validation import (
    CLASS_COUNTS,
    COUNTS,
    RANKINGS,
    FoldResult,
    FoldTask,
    Grid,
)

FORMAT = "bigsvm tuning 3"  # 2 could not be used in another grid


class ResultStore:
    """Saves and loads the results of one tuning.

    The grid may change: points that it shares with the previous grid are not computed again.

    Parameters
    ----------
    folder : Path
    identity : dict
        What determines the results besides the grid: data, folds, limits. Results of another
        tuning are an error, since they must not be mixed in one table.
    grid : Grid
    classes : int
    """

    def __init__(self, folder: Path, identity: dict[str, Any], grid: Grid, classes: int) -> None:
        self._folder = folder
        self._identity = identity
        self._grid, self._classes = grid, classes
        self._saved: dict[Path, tuple[FoldResult, tuple[float, ...]]] = {}

    def save(self, task: FoldTask, result: FoldResult) -> FoldResult:
        """Add the result of a task to its file, atomically; return all results of that file."""
        path, C = self._path(task), task.C or self._grid.C
        if path in self._saved:
            before, others = self._saved[path]
            result = {name: np.concatenate([before[name], result[name]], 1) for name in result}
            C = (*others, *C)
        order = np.argsort(C)
        result, C = _at(result, order), tuple(np.array(C)[order].tolist())
        about = {"C": list(C), "algorithms": list(self._grid.algorithms)}
        write_tensors(path, result, {"format": FORMAT, "identity": self._identity, **about})
        self._saved[path] = result, C
        return _at(result, [C.index(value) for value in self._grid.C])

    def load(self, tasks: list[FoldTask]) -> tuple[dict[FoldTask, FoldResult], list[FoldTask]]:
        """The tasks that are done, with their results, and those that are not.

        The latter have the values of C that are missing. Damaged results are skipped with a
        warning, to be computed again.
        """
        for path in sorted(self._folder.glob("*.safetensors")):
            try:
                result, about = read_tensors(path)
                if about.get("format") != FORMAT:
                    raise UserError(f"{path}: is {about.get('format')!r}, not {FORMAT!r}")
            except UserError as damage:
                LOGGER.warning("%s; it is computed again", damage)
                continue
            check_same_run(about.get("identity"), self._identity, self._folder.parent)
            algorithms, C = about.get("algorithms"), about.get("C")
            if not self._is_valid(result, algorithms, C):
                LOGGER.warning("%s: has no valid results; it is computed again", path)
                continue
            assert isinstance(algorithms, list) and isinstance(C, list)
            if set(self._grid.algorithms) <= set(algorithms):
                places = [algorithms.index(name) for name in self._grid.algorithms]
                self._saved[path] = {k: v[places] for k, v in result.items()}, tuple(C)
        done, missing = {}, []
        for task in tasks:
            result, C = self._saved.get(self._path(task), ({}, ()))
            rest = tuple(value for value in self._grid.C if value not in C)
            if rest:
                missing.append(task._replace(C=rest))
            else:
                done[task] = _at(result, [C.index(value) for value in self._grid.C])
        return done, missing

    def clear(self) -> None:
        """Delete all results."""
        for path in self._folder.glob("*.safetensors"):
            path.unlink()

    def _path(self, task: FoldTask) -> Path:
        gamma = self._grid.kernels[task.kernel].gamma
        return self._folder / f"gamma-{gamma!r}-fold-{task.fold:03d}.safetensors"

    def _is_valid(self, result: FoldResult, algorithms: object, C: object) -> bool:
        """Whether these are valid arrays of a tuning: counts or fractions, for every point."""
        if not isinstance(algorithms, list) or not isinstance(C, list):
            return False
        if set(result) != {*CLASS_COUNTS, *COUNTS, *RANKINGS}:
            return False
        for name, values in result.items():
            shape = (len(algorithms), len(C), *([self._classes] if name in CLASS_COUNTS else []))
            kind = np.float64 if name in RANKINGS else np.int64
            if values.shape != shape or values.dtype != kind or not bool((values >= 0).all()):
                return False
            if name in RANKINGS and not bool((values <= 1).all()):
                return False
        return True


def _at(result: FoldResult, places: Any) -> FoldResult:
    """The results at some values of C."""
    return {name: np.ascontiguousarray(values[:, places]) for name, values in result.items()}
