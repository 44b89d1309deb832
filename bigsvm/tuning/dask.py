"""Cross-validation on the workers of a Dask cluster: a fold under one kernel is a task.

A worker reads the patterns from the store by itself, and keeps them and the last kernel matrix.
"""

import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigsvm.backends import worker
from bigsvm.cluster.workers import Cluster
from bigsvm.core.threads import available_threads, threads
from bigsvm.solvers.whole_matrix import kernel_matrix
from bigsvm.stores.store import open_dataset
from bigsvm.tuning.cross_validation import Grid, Measures, Split, Unit, validate_fold


@dataclass(frozen=True)
class Task:
    """All that a worker needs for any unit of a tuning.

    Attributes
    ----------
    key : str
        Differs between tunings.
    store : str or dict
        The data set, as `open_dataset` takes it.
    seen : dict
        What the driver saw of it; see `worker.look`.
    index : (n,) int64
        The patterns taken part of it.
    """

    key: str
    store: Any
    seen: dict[str, Any]
    index: np.ndarray
    split: Split
    grid: Grid


def validate_on_cluster(
    cluster: Cluster,
    key: str,
    store: Any,
    index: np.ndarray,
    split: Split,
    grid: Grid,
    units: list[Unit],
    interrupted: Callable[[], bool],
) -> Generator[tuple[Unit, Measures], None, None]:
    """Yield the units, a round of one for each thread of the workers after the other."""
    seen = worker.look(store)
    cluster.examine(lambda theirs: worker.difference(theirs, seen, store), worker.look, store)
    task = Task(key, store, seen, index, split, grid)
    while units and not interrupted():
        workers = cluster.workers()
        places = [address for address, count in workers.items() for _ in range(count)]
        now = units[: len(places)]
        calls = [
            (address, (task, unit, workers[address]))
            for address, unit in zip(places, now, strict=False)
        ]
        answers = cluster.compute(validate, calls)
        if answers is not None:
            yield from zip(now, answers, strict=True)
            units = units[len(now) :]


_one_at_a_time = threading.Lock()  # see backends.worker
_kept: dict[str, Any] = {}


def validate(task: Task, unit: Unit, thread_count: int) -> Measures:
    """Runs on a worker: one unit."""
    with _one_at_a_time:
        if _kept.get("key") != task.key:
            _kept.clear()
            if reason := worker.difference(worker.look(task.store), task.seen, task.store):
                raise worker.UnfitWorker(reason)
            with open_dataset(task.store, with_labels=False) as dataset:
                _kept.update(key=task.key, rows=dataset.gather(task.index))
        if _kept.get("kernel") != unit.kernel:
            _kept.pop("matrix", None)  # two at a time may be more than there is room for
            with threads(min(thread_count, available_threads())):
                _kept["matrix"] = kernel_matrix(task.grid.kernels[unit.kernel], _kept["rows"])
            _kept["kernel"] = unit.kernel
        matrix = _kept["matrix"]
    return validate_fold(matrix, task.split, unit.fold, task.grid)
