"""What a tuning has found so far, a file for each fold under each kernel."""

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
    """The finished tasks of one tuning.

    Parameters
    ----------
    folder : Path
    identity : dict
        What the tuning is of: data, folds and grid. Units of another one are refused: a table of
        both would be of neither.
    shape : tuple of int
        How many algorithms, and how many C.
    """

    def __init__(self, folder: Path, identity: dict[str, Any], shape: tuple[int, int]) -> None:
        self._folder = folder
        self._identity = identity
        self._shape = shape

    def save(self, task: FoldTask, result: FoldResult) -> None:
        """Write a task, whole or not at all."""
        write_tensors(self._path(task), result, {"format": FORMAT, "identity": self._identity})

    def load(self, tasks: list[FoldTask]) -> dict[FoldTask, FoldResult]:
        """Those of the tasks that are there; damaged ones are named, and left to be done again."""
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
                print(f"warning: {path}: holds no results; computed again", file=sys.stderr)
                continue
            found[path] = result
        return {task: found[path] for task in tasks if (path := self._path(task)) in found}

    def clear(self) -> None:
        """Forget all."""
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
