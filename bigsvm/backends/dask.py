"""The data on the workers of a Dask cluster: each serves one stretch of the rows.

A worker reads its rows from the store by itself. What travels on a pass is the rows that moved,
there, and the sums, back: one task a worker, and nothing of it is kept on the cluster.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from bigsvm.backends import worker
from bigsvm.backends.gathered import with_coefficients
from bigsvm.backends.kernel_values import KernelValues
from bigsvm.backends.local import LocalBackend
from bigsvm.backends.sums import as_columns, weights_of
from bigsvm.backends.worker import Stretch
from bigsvm.cluster.workers import Cluster
from bigsvm.core.errors import ClusterLost
from bigsvm.files.sealed import InPieces
from bigsvm.kernels import LANES, Kernel
from bigsvm.stores.store import Dataset

# With at least so many chunks a worker, stretches end where chunks do: no chunk is read twice. With
# fewer that would load the workers too unequally.
_CHUNKS_ENOUGH = 16


class DaskBackend:
    """Serves a data set to a solver from the workers of a cluster; see `Backend`.

    Parameters
    ----------
    dataset : Dataset
    store : str or dict
        The same data set, as `open_dataset` takes it; workers open it themselves.
    kernel : Kernel
    cluster : Cluster
    memory_limit : int
        Bytes for the process of each worker.
    sums : int
        How many a pass makes of every kernel value: they take memory, too.
    rows_at_once : int
        See `Backend`.

    Attributes
    ----------
    passes : int
        Products so far, each a pass over the data.
    overhead : float
        The seconds of them in which the slowest worker was not computing.
    """

    def __init__(
        self,
        dataset: Dataset,
        store: Any,
        kernel: Kernel,
        cluster: Cluster,
        memory_limit: int,
        sums: int = 1,
        rows_at_once: int = 2**15,
    ) -> None:
        self.n, self.d = dataset.n, dataset.d
        self.rows_at_once = rows_at_once
        self.kernel_values = KernelValues()
        self.passes, self.overhead = 0, 0.0
        self._dataset = dataset
        self._store = store
        self._kernel = kernel
        self._cluster = cluster
        self._memory_limit = memory_limit
        self._sums = sums
        self._seen = worker.look(store)
        cluster.examine(lambda seen: worker.difference(seen, self._seen, store), worker.look, store)

    def gather(self, indices: np.ndarray) -> np.ndarray:
        """See `Backend`."""
        indices = np.asarray(indices, np.int64)
        rows = np.empty((len(indices), self.d), np.float32)

        def here(stretch: Stretch) -> np.ndarray:
            return (indices >= stretch.start) & (indices < stretch.stop)

        def wanted(stretch: Stretch) -> tuple[np.ndarray, ...] | None:
            found = indices[here(stretch)]
            return (found,) if len(found) else None

        try:
            for stretch, _, part in self._served(worker.gather, wanted):
                rows[here(stretch)] = part
            return rows
        except ClusterLost:
            return self._dataset.gather(indices)  # see `columns`

    def columns(self, rows: np.ndarray, out: np.ndarray, slots: np.ndarray) -> None:
        """See `Backend`.

        A schedule that asks for columns is in the middle of a step. So where the cluster is lost,
        this process computes them: the step is completed, the state is whole, and the training can
        save it and leave.
        """
        self.kernel_values.add_columns(rows, self.n)
        try:
            for stretch, _, part in self._served(worker.columns, lambda _: (rows,)):
                out[slots, stretch.start : stretch.stop] = part
        except ClusterLost:
            LocalBackend(self._dataset, self._kernel, 0).columns(rows, out, slots)

    def matvec(self, rows: np.ndarray | InPieces, coef: np.ndarray) -> np.ndarray:
        """See `Backend`; `ClusterLost` where it is, for no state changes before a pass is whole."""
        self.kernel_values.add_product(self._kernel, rows, coef, self.n)
        begin = time.monotonic()
        sums = np.zeros((*coef.shape[1:], self.n))
        slowest = 0.0
        for function, arguments in self._of_pieces(rows, coef, sums):
            served = self._served(function, arguments)
            for stretch, _, part in served:
                sums[..., stretch.start : stretch.stop] = part
            slowest += max(seconds for _, seconds, _ in served)
        taken = time.monotonic() - begin
        self.passes += 1
        self.overhead += taken - slowest
        return sums

    def _of_pieces(
        self, rows: np.ndarray | InPieces, coef: np.ndarray, sums: np.ndarray
    ) -> Iterator[tuple[Callable, Callable[[Stretch], tuple]]]:
        """What to ask of the workers, one after the other; `sums` are the answers before."""
        if self._kernel.name == "linear":
            weights = weights_of(rows, as_columns(coef))
            yield worker.linear, lambda _: (weights,)
            return
        before = None
        for piece, its_coef in with_coefficients(rows, coef):
            yield worker.matvec, partial(_with_sums, piece, its_coef, before)
            before = sums

    @property
    def overhead_a_pass(self) -> float | None:
        """Seconds of a pass, on average, in which its slowest worker was not computing."""
        return self.overhead / self.passes if self.passes else None

    def _served(
        self, function: Callable, arguments: Callable[[Stretch], tuple | None]
    ) -> list[tuple[Stretch, float, np.ndarray]]:
        """Stretches, the seconds a worker took for each, and its answer.

        A stretch for which `arguments` gives None is left out.
        """
        while True:
            calls, stretches = [], []
            for address, stretch in self._stretches(self._cluster.workers()):
                given = arguments(stretch)
                if given is not None:
                    calls.append((address, (stretch, *given)))
                    stretches.append(stretch)
            answers = self._cluster.compute(function, calls)
            if answers is not None:
                return [(s, *answer) for s, answer in zip(stretches, answers, strict=True)]

    def _stretches(self, workers: dict[str, int]) -> list[tuple[str, Stretch]]:
        """Divide the rows among the workers, by their threads."""
        unit = self._dataset.chunk_rows
        if self.n < _CHUNKS_ENOUGH * len(workers) * unit:
            unit = LANES
        units = -(-self.n // unit)
        shares = np.cumsum([0, *workers.values()]) / sum(workers.values())
        edges = [min(self.n, round(share * units) * unit) for share in shares]
        return [
            (address, self._stretch(start, stop, threads))
            for (address, threads), start, stop in zip(
                workers.items(), edges[:-1], edges[1:], strict=True
            )
            if start < stop
        ]

    def _stretch(self, start: int, stop: int, threads: int) -> Stretch:
        chunks = self._dataset.remembered.items()
        remembered = {span: seen for span, seen in chunks if span[0] < stop and span[1] > start}
        return Stretch(
            self._store, self._seen, remembered, self._kernel, start, stop, self._memory_limit,
            threads, self._sums,
        )  # fmt: skip


def _with_sums(
    rows: np.ndarray, coef: np.ndarray, before: np.ndarray | None, stretch: Stretch
) -> tuple[np.ndarray, ...]:
    """What `worker.matvec` is given for a stretch; `before` are the sums of all patterns so far."""
    if before is None:
        return rows, coef
    return rows, coef, before[..., stretch.start : stretch.stop]
