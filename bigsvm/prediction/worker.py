"""The part of `predict` that runs on a Dask worker: it keeps the model and scores rows."""

from typing import Any

import numpy as np

from bigsvm.cluster.worker_process import UnfitWorker, software_versions, task_lock
from bigsvm.core.compiled import available_threads, use_threads
from bigsvm.kernels import block_of
from bigsvm.models.scoring import Scorer

_kept: tuple[str, Scorer] | None = None


def take(key: str, expected: dict[str, Any], scorer: Scorer) -> dict[str, Any]:
    """Store the scorer if the software versions are as expected; return the versions."""
    global _kept
    _kept = (key, scorer) if software_versions() == expected else None
    return software_versions()


def decide(key: str, rows: np.ndarray, count: int) -> np.ndarray:
    """The decision values (model, row) of rows, by the scorer stored under `key`."""
    with task_lock:
        if _kept is None or _kept[0] != key:
            raise UnfitWorker("it does not have the model yet")
        with use_threads(min(count, available_threads())):
            return _kept[1].decisions(block_of(rows))
