"""The finished folds of a tuning: a file for each fold under each kernel."""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from bigsvm.core.errors import UserError
from bigsvm.files.checked_tensors import read_tensors, write_tensors
from bigsvm.training.checkpoint import check_same_run
from bigsvm.tuning.cross_validation import COUNTS, ORDERS, FoldResult, FoldTask

FORMAT = "bigsvm tuning 2"  # 1 had no auc and average_precision


class ResultStore:
    """Saves and loads the results of one tuning.

    Parameters
    ----------
    folder : Path
    identity : dict
        What determines the results: data, folds and grid. Results of another tuning are an error,
        since they must not be mixed in one table.
    shape : tuple of int
        The numbers of algorithms and of values of C.
    """

    def __init__(self, folder: Path, identity: dict[str, Any], shape: tuple[int, int]) -> None:
        self._folder = folder
        self._identity = identity
        self._shape = shape

    def save(self, task: FoldTask, result: FoldResult) -> None:
        """Write the result of a task atomically."""
        write_tensors(self._path(task), result, {"format": FORMAT, "identity": self._identity})

    def load(self, tasks: list[FoldTask]) -> dict[FoldTask, FoldResult]:
        """The saved results; damaged ones are skipped with a warning, to be computed again."""
        found = {}
        for path in sorted(self._folder.glob("*.safetensors")):
            try:
                result, about = read_tensors(path)
                if about.get("format") != FORMAT or set(result) != {*COUNTS, *ORDERS}:
                    raise UserError(f"{path}: is {about.get('format')!r}, not {FORMAT!r}")
            except UserError as damage:
                print(f"warning: {damage}; it is computed again", file=sys.stderr)
                continue
            check_same_run(about.get("identity"), self._identity, self._folder.parent)
            if any(_is_impossible(name, of_kind, self._shape) for name, of_kind in result.items()):
                print(
                    f"warning: {path}: has no valid results; it is computed again", file=sys.stderr
                )
                continue
            found[path] = result
        return {task: found[path] for task in tasks if (path := self._path(task)) in found}

    def clear(self) -> None:
        """Delete all results."""
        for path in self._folder.glob("*.safetensors"):
            path.unlink()

    def _path(self, task: FoldTask) -> Path:
        return self._folder / f"kernel-{task.kernel:03d}-fold-{task.fold:03d}.safetensors"


def _is_impossible(name: str, values: np.ndarray, shape: tuple[int, int]) -> bool:
    """Whether an array is not what a tuning writes: counts or shares, for every grid point."""
    if name in ORDERS:
        return (
            values.shape != shape
            or values.dtype != np.float64
            or not bool(((values >= 0) & (values <= 1)).all())
        )
    return values.shape != shape or values.dtype != np.int64 or bool((values < 0).any())
