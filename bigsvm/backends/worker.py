"""Tasks on a Dask worker: the kernels, applied to a shard of rows that the worker reads itself.

A worker holds no state of the training. Between tasks it keeps only the shard of the last task, as
much of it as fits in memory.
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
from bigsvm.core.compiled import available_threads
from bigsvm.core.errors import UserError
from bigsvm.kernels import Kernel, warm_up
from bigsvm.stores.store import Dataset, open_dataset


@dataclass(frozen=True)
class RowShard:
    """Rows `start` to `stop` of a data set, and how to serve them.

    Attributes
    ----------
    store : str or dict
        The spec of the data set for `open_dataset`.
    seen : dict
        What `probe` returned to the driver.
    checksums : dict
        Checksums of the rows as the driver read them; see `Dataset.checksums`.
    kernel : Kernel
    start, stop : int
    memory_limit, threads : int
        Limits of the worker process.
    n_outputs : int
        Decision values per pattern.
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


class _ShardDataset(Dataset):
    """A range of rows of a data set, with the interface of a data set."""

    def __init__(self, whole: Dataset, start: int, stop: int) -> None:
        self._whole, self._start = whole, start
        self.n = stop - start
        self.chunk_rows = min(whole.chunk_rows, self.n)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)  # whatever does not depend on the range

    def read(self, start: int, stop: int, *space: Any) -> np.ndarray:
        return self._whole.read(self._start + start, self._start + stop, *space)

    def read_panels(self, start: int, stop: int, *spaces: Any) -> np.ndarray:
        return self._whole.read_panels(self._start + start, self._start + stop, *spaces)

    def gather(self, indices: np.ndarray, *where: Any) -> np.ndarray:
        return self._whole.gather(self._start + np.asarray(indices), *where)

    def verify_against(self, checksums: dict[tuple[int, int], int]) -> None:
        """Reject, now or when they are read, rows that differ from those the driver read.

        Reads no row if the shard is aligned with the driver's chunks.
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
    """Return the seconds taken and the patterns `indices`, which lie in the shard."""
    with task_lock:
        begin = time.monotonic()
        rows = _served(shard).gather(indices - shard.start)
        return time.monotonic() - begin, rows


def columns(shard: RowShard, rows: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the seconds taken and the kernel columns of `rows` over the shard."""
    with task_lock:
        begin = time.monotonic()
        part = np.empty((len(rows), shard.stop - shard.start), np.float32)
        _served(shard).columns(rows, part, np.arange(len(rows)))
        return time.monotonic() - begin, part


def matvec(
    shard: RowShard, rows: np.ndarray, coef: np.ndarray, before: np.ndarray | None = None
) -> tuple[float, np.ndarray]:
    """Return the seconds taken and the kernel products of the patterns in the shard.

    `before` holds the products with the chunks of rows before this one, which are added to.
    """
    with task_lock:
        begin = time.monotonic()
        if before is None:
            out = _served(shard).matvec(rows, coef)
        else:
            out = before.copy()  # arrays received through Dask may be read-only
            _served(shard).add_products(rows, as_2d(coef), np.atleast_2d(out))
        return time.monotonic() - begin, out


def linear(shard: RowShard, weights: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the seconds taken and the products of the shard with weight vectors."""
    with task_lock:
        begin = time.monotonic()
        out = np.zeros((len(weights), shard.stop - shard.start))
        _served(shard).add_linear(weights, out)
        return time.monotonic() - begin, out


def probe(store: Any) -> dict[str, Any]:
    """What must be the same on every worker: software versions, and the store as seen there."""
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
    """How a worker differs from the driver, for a message; None if it does not."""
    if reason := version_mismatch(seen, expected, "the trainer"):
        return reason
    path = store["path"] if isinstance(store, dict) else store
    if "problem" in seen:
        return f"cannot see the store ({seen['problem']}); put {path} where all workers see it"
    if seen["store"] != expected["store"]:
        return f"sees another store at {path} than the trainer; put the same one there"
    return None


def _served(shard: RowShard) -> LocalBackend:
    """The backend for the shard: that of the last task if it was the same shard, else a new one."""
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
            part = _ShardDataset(whole, shard.start, shard.stop)
            part.verify_against(shard.checksums)
            plan = plan_memory(shard.memory_limit, part, n_outputs=shard.n_outputs)
            # A quarter is left for columns, products and moved rows.
            for_data = 3 * (plan.resident + plan.solver) // 4
            threads = min(shard.threads, available_threads())
            _kept = shard, part, LocalBackend(part, shard.kernel, for_data, threads)
            undo.pop_all()
    return _kept[2]
