"""What runs on a Dask worker: the kernels, on a shard of the rows that the worker reads itself.

A worker holds no state of the training. All it keeps between tasks is the shard it was last asked
for, as much of it as fits in memory.
"""

import hashlib
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigsvm.backends.local import LocalBackend
from bigsvm.backends.memory import plan_memory
from bigsvm.backends.products import as_2d
from bigsvm.cluster.worker_process import (
    UnfitWorker,
    software_versions,
    task_lock,
    version_mismatch,
)
from bigsvm.core.errors import UserError
from bigsvm.core.threads import available_threads
from bigsvm.kernels import Kernel, warm_up
from bigsvm.stores.store import Dataset, open_dataset


@dataclass(frozen=True)
class RowShard:
    """Rows `start` to `stop` of a data set, and how they are to be served.

    Attributes
    ----------
    store : str or dict
        The data set, as `open_dataset` takes it.
    seen : dict
        What the driver saw of that store and of its own software; see `probe`.
    checksums : dict
        Checksums of the rows as the driver saw them; see `Dataset.checksums`.
    kernel : Kernel
    start, stop : int
    memory_limit, threads : int
        Of the worker's process.
    n_outputs : int
        How many a pass makes of every kernel value.
    """

    store: Any
    seen: dict[str, Any]
    checksums: dict[tuple[int, int], int]
    kernel: Kernel
    start: int
    stop: int
    memory_limit: int
    threads: int
    n_outputs: int = 1


class _Part(Dataset):
    """Some rows of a data set, as if they were all of it."""

    def __init__(self, whole: Dataset, start: int, stop: int) -> None:
        self._whole, self._start = whole, start
        self.n = stop - start
        self.chunk_rows = min(whole.chunk_rows, self.n)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)  # all that is the same for some rows as for all

    def read(self, start: int, stop: int, *space: Any) -> np.ndarray:
        return self._whole.read(self._start + start, self._start + stop, *space)

    def read_panels(self, start: int, stop: int, *spaces: Any) -> np.ndarray:
        return self._whole.read_panels(self._start + start, self._start + stop, *spaces)

    def gather(self, indices: np.ndarray, *where: Any) -> np.ndarray:
        return self._whole.gather(self._start + np.asarray(indices), *where)

    def verify_against(self, checksums: dict[tuple[int, int], int]) -> None:
        """Refuse, now or whenever they are read, rows that are not those the driver saw.

        Where this part is cut as the driver's chunks are, no row is read for that.
        """
        self._whole.expect_checksums(checksums)
        for start, stop in self.spans():
            first, last = self._start + start, self._start + stop
            if (first, last) in checksums:
                continue
            pieces = [
                self._whole.read(*chunk)[max(0, first - chunk[0]) : last - chunk[0]]
                for chunk in sorted(checksums)
                if chunk[0] < last and chunk[1] > first
            ]
            if pieces:
                self._whole.record_checksum(first, last, np.concatenate(pieces))

    def close(self) -> None:
        self._whole.close()


_kept: tuple[RowShard, Dataset, LocalBackend] | None = None


def gather(shard: RowShard, indices: np.ndarray) -> tuple[float, np.ndarray]:
    """Seconds taken, and the patterns `indices` of the shard."""
    with task_lock:
        begin = time.monotonic()
        rows = _served(shard).gather(indices - shard.start)
        return time.monotonic() - begin, rows


def columns(shard: RowShard, rows: np.ndarray) -> tuple[float, np.ndarray]:
    """Seconds taken, and the kernel columns of `rows`, as far as the shard goes."""
    with task_lock:
        begin = time.monotonic()
        part = np.empty((len(rows), shard.stop - shard.start), np.float32)
        _served(shard).columns(rows, part, np.arange(len(rows)))
        return time.monotonic() - begin, part


def matvec(
    shard: RowShard, rows: np.ndarray, coef: np.ndarray, before: np.ndarray | None = None
) -> tuple[float, np.ndarray]:
    """Seconds taken, and the kernel products of the patterns in the shard.

    With `before`, the products with the rows ahead of these, the sums go on from there.
    """
    with task_lock:
        begin = time.monotonic()
        if before is None:
            sums = _served(shard).matvec(rows, coef)
        else:
            sums = before.copy()  # what Dask hands over may be read-only
            _served(shard).add_products(rows, as_2d(coef), np.atleast_2d(sums))
        return time.monotonic() - begin, sums


def linear(shard: RowShard, weights: np.ndarray) -> tuple[float, np.ndarray]:
    """Seconds taken, and the products of the patterns in the shard with weight vectors."""
    with task_lock:
        begin = time.monotonic()
        sums = np.zeros((len(weights), shard.stop - shard.start))
        _served(shard).add_linear(weights, sums)
        return time.monotonic() - begin, sums


def probe(store: Any) -> dict[str, Any]:
    """What must be the same on every worker: the software, and the store as it is seen there."""
    seen = software_versions()
    try:
        with open_dataset(store, with_labels=False) as dataset:
            ends = [dataset.read(i, i + 1).tobytes() for i in (0, dataset.n - 1)]
            about = f"{dataset.n} {dataset.d} {dataset.recorded_fingerprint}".encode()
            seen["store"] = hashlib.sha256(b"\n".join([about, *ends])).hexdigest()
    except (UserError, OSError) as problem:
        seen["problem"] = str(problem)
    return seen


def mismatch(seen: dict[str, Any], expected: dict[str, Any], store: Any) -> str | None:
    """In what a worker differs from the driver, in words; None where it is fit."""
    if reason := version_mismatch(seen, expected, "the trainer"):
        return reason
    path = store["path"] if isinstance(store, dict) else store
    if "problem" in seen:
        return f"cannot see the store ({seen['problem']}); put {path} where all workers see it"
    if seen["store"] != expected["store"]:
        return f"sees another store at {path} than the trainer; put the same one there"
    return None


def _served(shard: RowShard) -> LocalBackend:
    """The rows of the shard, opened now, or still there from the last task."""
    global _kept
    if _kept is None or _kept[0] != shard:
        if _kept is not None:
            _kept[1].close()
        _kept = None
        if reason := mismatch(probe(shard.store), shard.seen, shard.store):
            raise UnfitWorker(reason)
        warm_up(shard.kernel)
        with ExitStack() as undo:
            whole = undo.enter_context(open_dataset(shard.store, with_labels=False))
            part = _Part(whole, shard.start, shard.stop)
            part.verify_against(shard.checksums)
            plan = plan_memory(shard.memory_limit, part, n_outputs=shard.n_outputs)
            for_data = 3 * (plan.resident + plan.solver) // 4  # the rest: columns, sums, moved rows
            threads = min(shard.threads, available_threads())
            _kept = shard, part, LocalBackend(part, shard.kernel, for_data, threads)
            undo.pop_all()
    return _kept[2]
