"""What runs on a Dask worker for `predict`: a model that is kept, and rows that come."""

from typing import Any

import numpy as np

from bigsvm.cluster.worker_process import UnfitWorker, software_versions, task_lock
from bigsvm.core.threads import available_threads, use_threads
from bigsvm.kernels import block_of
from bigsvm.models.scoring import Scorer

_kept: tuple[str, Scorer] | None = None


def take(key: str, expected: dict[str, Any], scorer: Scorer) -> dict[str, Any]:
    """Keep a scorer, in place of any before, if the software is as expected; tell what it is."""
    global _kept
    _kept = (key, scorer) if software_versions() == expected else None
    return software_versions()


def decide(key: str, rows: np.ndarray, count: int) -> np.ndarray:
    """The decision values (model, row) of rows, by the scorer that was taken under `key`."""
    with task_lock:
        if _kept is None or _kept[0] != key:
            raise UnfitWorker("it has not got the model yet")
        with use_threads(min(count, available_threads())):
            return _kept[1].decisions(block_of(rows))
