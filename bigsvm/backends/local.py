"""The data in this process: chunks kept in memory while they fit, streamed from disk otherwise."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from bigsvm import kernels
from bigsvm.kernels import LANES, Block, Kernel, block_of
from bigsvm.store import Dataset
from bigsvm.threads import available_threads, threads

T = TypeVar("T")
R = TypeVar("R")


class LocalBackend:
    """Serves a data set to a solver from this process, with numba threads.

    Parameters
    ----------
    dataset : Dataset
    kernel : Kernel
    resident_bytes : int
        Chunks are kept in memory up to this many bytes; the others are read again on every pass, in
        the background, while the one before them is computed.
    threads : int or None
        None: all cores.
    """

    def __init__(
        self, dataset: Dataset, kernel: Kernel, resident_bytes: int, threads: int | None = None
    ) -> None:
        self.n, self.d = dataset.n, dataset.d
        self._dataset = dataset
        self._kernel = kernel
        self._threads = min(threads or available_threads(), available_threads())
        chunk_bytes = 4 * dataset.chunk_rows * dataset.d
        self._resident: dict[int, Block] = {}
        for span in dataset.spans():
            if resident_bytes < chunk_bytes:
                break
            self._resident[span[0]] = self._load(span)
            resident_bytes -= chunk_bytes

    def gather(self, indices: np.ndarray) -> np.ndarray:
        """See `Backend`."""
        indices = np.asarray(indices, np.int64)
        rows = np.empty((len(indices), self.d), np.float32)
        starts = indices // self._dataset.chunk_rows * self._dataset.chunk_rows
        absent = np.ones(len(indices), bool)
        for start in np.unique(starts):
            if block := self._resident.get(int(start)):
                here = starts == start
                panel, lane = np.divmod(indices[here] - start, LANES)
                rows[here] = block.panels[panel, :, lane]
                absent &= ~here
        if absent.any():
            rows[absent] = self._dataset.gather(indices[absent])
        return rows

    def columns(self, rows: np.ndarray, out: np.ndarray, slots: np.ndarray) -> None:
        """See `Backend`."""
        with threads(self._threads):
            for block in self._blocks():
                kernels.columns(self._kernel, block, rows, out, slots)

    def matvec(self, rows: np.ndarray, coef: np.ndarray) -> np.ndarray:
        """See `Backend`."""
        sums = np.zeros((1, self.n))
        with threads(self._threads):
            for block in self._blocks():
                kernels.products(self._kernel, block, rows, coef[:, None], sums)
        return sums[0]

    def _blocks(self) -> Iterator[Block]:
        yield from self._resident.values()
        streamed = [span for span in self._dataset.spans() if span[0] not in self._resident]
        yield from prefetched(self._load, streamed)

    def _load(self, span: tuple[int, int]) -> Block:
        return block_of(self._dataset.read(*span), start=span[0])


def prefetched(function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """``map(function, items)``, each result computed in the background while the last is used."""
    with ThreadPoolExecutor(max_workers=1) as background:
        waiting = None
        for item in items:
            following = background.submit(function, item)
            if waiting is not None:
                yield waiting.result()
            waiting = following
        if waiting is not None:
            yield waiting.result()
