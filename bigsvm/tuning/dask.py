"""Cross-validation on a Dask cluster: a fold under one kernel is a task.

Each worker reads the patterns from the store, and keeps them and the last kernel matrix.
"""

import hashlib
import json
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.backends import worker
from bigsvm.cluster.worker_process import UnfitWorker
from bigsvm.cluster.workers import Cluster
from bigsvm.core.compiled import available_threads, use_threads
from bigsvm.solvers.precomputed import kernel_matrix
from bigsvm.stores.store import open_dataset
from bigsvm.tuning.cross_validation import FoldResult, FoldTask, Grid, Split, validate_fold

if TYPE_CHECKING:
    from bigsvm.tuning.build import Tuning


@dataclass(frozen=True)
class TuningJob:
    """What a worker needs for any fold of a tuning.

    Attributes
    ----------
    key : str
        Identifies the tuning.
    store : str or dict
        The data set, as for `open_dataset`.
    seen : dict
        The driver's own probe of it; see `worker.probe`.
    index : (n,) int64
        The patterns used.
    """

    key: str
    store: Any
    seen: dict[str, Any]
    index: np.ndarray
    split: Split
    grid: Grid


def validate_on_cluster(
    cluster: Cluster,
    store: Any,
    tuning: "Tuning",
    tasks: list[FoldTask],
    interrupted: Callable[[], bool],
) -> Generator[tuple[FoldTask, FoldResult], None, None]:
    """Yield results in rounds of one task per worker thread."""
    seen = worker.probe(store)
    cluster.check_workers(lambda theirs: worker.mismatch(theirs, seen, store), worker.probe, store)
    of_all = [tuning.identity, *map(repr, tuning.grid.kernels)]
    key = hashlib.sha256(json.dumps(of_all).encode()).hexdigest()
    job = TuningJob(key, store, seen, tuning.index, tuning.split, tuning.grid)
    while tasks and not interrupted():
        workers = cluster.workers()
        places = [address for address, count in workers.items() for _ in range(count)]
        now = tasks[: len(places)]
        calls = [
            (address, (job, task, workers[address]))
            for address, task in zip(places, now, strict=False)
        ]
        answers = cluster.compute(validate, calls)
        if answers is not None:
            yield from zip(now, answers, strict=True)
            tasks = tasks[len(now) :]


_one_at_a_time = threading.Lock()  # see backends.worker
_kept: dict[str, Any] = {}


def validate(job: TuningJob, task: FoldTask, thread_count: int) -> FoldResult:
    """Run one task, on a worker."""
    with _one_at_a_time:
        if _kept.get("key") != job.key:
            _kept.clear()
            if reason := worker.mismatch(worker.probe(job.store), job.seen, job.store):
                raise UnfitWorker(reason)
            with open_dataset(job.store, with_labels=False) as dataset:
                _kept.update(key=job.key, rows=dataset.gather(job.index))
        if _kept.get("kernel") != task.kernel:
            for name in ("kernel", "matrix"):  # there may not be memory for two matrices
                _kept.pop(name, None)
            with use_threads(min(thread_count, available_threads())):
                _kept["matrix"] = kernel_matrix(job.grid.kernels[task.kernel], _kept["rows"])
            _kept["kernel"] = task.kernel
        matrix = _kept["matrix"]
    return validate_fold(matrix, job.split, task, job.grid)
