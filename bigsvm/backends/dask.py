"""The data on the workers of a Dask cluster: each worker serves one shard of the rows.

Workers read their rows from the store themselves. A pass sends each worker one task with the rows
that moved and receives its products; nothing stays on the cluster.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from bigsvm.backends import KernelCounter, worker
from bigsvm.backends.local import LocalBackend
from bigsvm.backends.products import as_2d, chunks_with_coef, linear_weights
from bigsvm.backends.worker import RowShard
from bigsvm.cluster.workers import Cluster
from bigsvm.core.arrays import RowChunks
from bigsvm.core.errors import ClusterLost
from bigsvm.kernels import LANES, Kernel
from bigsvm.stores.store import Dataset

# With at least this many chunks per worker, shards end at chunk boundaries, so that no chunk is
# read twice. With fewer, that would balance the load too badly.
_ALIGNED_CHUNKS = 16


class DaskBackend:
    """Serves a data set from the workers of a cluster; see `Backend`.

    Parameters
    ----------
    dataset : Dataset
    store : str or dict
        The spec of the same data set for `open_dataset`; workers open it themselves.
    kernel : Kernel
    cluster : Cluster
    memory_limit : int
        Bytes for each worker process.
    n_outputs : int
        Decision values per pattern; they take memory on the workers.
    rows_at_once : int
        See `Backend`.

    Attributes
    ----------
    passes : int
        Products so far, each of which is a pass over the data.
    overhead : float
        Seconds of these passes in which the slowest worker was not computing.
    worker_seconds : Counter
        Seconds that each worker has computed, by address.
    busy_seconds : float
        The same of the slowest worker in each request, which the others and the driver wait for.
    """

    def __init__(
        self,
        dataset: Dataset,
        store: Any,
        kernel: Kernel,
        cluster: Cluster,
        memory_limit: int,
        n_outputs: int = 1,
        rows_at_once: int = 2**15,
    ) -> None:
        self.n, self.d = dataset.n, dataset.d
        self.rows_at_once = rows_at_once
        self.kernel_values = KernelCounter()
        self.passes, self.overhead = 0, 0.0
        self.worker_seconds: Counter[str] = Counter()
        self.busy_seconds = 0.0
        self._dataset = dataset
        self._store = store
        self._kernel = kernel
        self._cluster = cluster
        self._memory_limit = memory_limit
        self._n_outputs = n_outputs
        self._seen = worker.probe(store)
        cluster.check_workers(
            lambda seen: worker.mismatch(seen, self._seen, store), worker.probe, store
        )

    def gather(self, indices: np.ndarray) -> np.ndarray:
        """See `Backend`."""
        indices = np.asarray(indices, np.int64)
        rows = np.empty((len(indices), self.d), np.float32)

        def in_shard(shard: RowShard) -> np.ndarray:
            return (indices >= shard.start) & (indices < shard.stop)

        def arguments(shard: RowShard) -> tuple[np.ndarray, ...] | None:
            found = indices[in_shard(shard)]
            return (found,) if len(found) else None

        try:
            for shard, _, part in self._served(worker.gather, arguments):
                rows[in_shard(shard)] = part
            return rows
        except ClusterLost:
            return self._dataset.gather(indices)  # see `columns`

    def columns(self, rows: np.ndarray, out: np.ndarray, slots: np.ndarray) -> None:
        """See `Backend`.

        A schedule that requests columns is in the middle of a step. If the cluster is lost, this
        process computes them, so that the step completes and the training can save a consistent
        state before it ends.
        """
        self.kernel_values.add_columns(rows, self.n)
        try:
            for shard, _, part in self._served(worker.columns, lambda _: (rows,)):
                out[slots, shard.start : shard.stop] = part
        except ClusterLost:
            LocalBackend(self._dataset, self._kernel, 0).columns(rows, out, slots)

    def matvec(self, rows: np.ndarray | RowChunks, coef: np.ndarray) -> np.ndarray:
        """See `Backend`; raises `ClusterLost`, since no state changes before a pass is complete."""
        self.kernel_values.add_product(self._kernel, rows, coef, self.n)
        begin = time.monotonic()
        out = np.zeros((*coef.shape[1:], self.n))
        slowest = 0.0
        for function, arguments in self._chunk_tasks(rows, coef, out):
            served = self._served(function, arguments)
            for shard, _, part in served:
                out[..., shard.start : shard.stop] = part
            slowest += max(seconds for _, seconds, _ in served)
        taken = time.monotonic() - begin
        self.passes += 1
        self.overhead += taken - slowest
        return out

    def _chunk_tasks(
        self, rows: np.ndarray | RowChunks, coef: np.ndarray, out: np.ndarray
    ) -> Iterator[tuple[Callable, Callable[[RowShard], tuple]]]:
        """Yield the tasks of one product; `out` holds the products of the chunks before."""
        if self._kernel.name == "linear":
            weights = linear_weights(rows, as_2d(coef))
            yield worker.linear, lambda _: (weights,)
            return
        before = None
        for chunk, chunk_coef in chunks_with_coef(rows, coef):
            yield worker.matvec, partial(_matvec_arguments, chunk, chunk_coef, before)
            before = out

    @property
    def overhead_per_pass(self) -> float | None:
        """Mean seconds per pass in which the slowest worker was not computing."""
        return self.overhead / self.passes if self.passes else None

    def _served(
        self, function: Callable, arguments: Callable[[RowShard], tuple | None]
    ) -> list[tuple[RowShard, float, np.ndarray]]:
        """Compute on all shards: a list of shard, seconds the worker took, and its result.

        Shards for which `arguments` returns None are left out.
        """
        while True:
            calls, shards = [], []
            for address, shard in self._shards(self._cluster.workers()):
                given = arguments(shard)
                if given is not None:
                    calls.append((address, (shard, *given)))
                    shards.append(shard)
            answers = self._cluster.compute(function, calls)
            if answers is not None:
                for (address, _), (seconds, _) in zip(calls, answers, strict=True):
                    self.worker_seconds[address] += seconds
                self.busy_seconds += max((seconds for seconds, _ in answers), default=0.0)
                return [(s, *answer) for s, answer in zip(shards, answers, strict=True)]

    def _shards(self, workers: dict[str, int]) -> list[tuple[str, RowShard]]:
        """Divide the rows among the workers in proportion to their threads."""
        unit = self._dataset.chunk_rows
        if self.n < _ALIGNED_CHUNKS * len(workers) * unit:
            unit = LANES
        units = -(-self.n // unit)
        shares = np.cumsum([0, *workers.values()]) / sum(workers.values())
        edges = [min(self.n, round(share * units) * unit) for share in shares]
        return [
            (address, self._shard(start, stop, threads))
            for (address, threads), start, stop in zip(
                workers.items(), edges[:-1], edges[1:], strict=True
            )
            if start < stop
        ]

    def _shard(self, start: int, stop: int, threads: int) -> RowShard:
        chunks = self._dataset.checksums.items()
        checksums = {span: seen for span, seen in chunks if span[0] < stop and span[1] > start}
        return RowShard(
            self._store, self._seen, checksums, self._kernel, start, stop, self._memory_limit,
            threads, self._n_outputs,
        )  # fmt: skip


def _matvec_arguments(
    rows: np.ndarray, coef: np.ndarray, before: np.ndarray | None, shard: RowShard
) -> tuple[np.ndarray, ...]:
    """The arguments of `worker.matvec`; `before` holds the products of all patterns so far."""
    if before is None:
        return rows, coef
    return rows, coef, before[..., shard.start : shard.stop]
