"""The data in this process: as many chunks as fit stay in memory, the others are streamed."""

from collections.abc import Iterator
from itertools import cycle
from queue import SimpleQueue

import numpy as np

from bigsvm import kernels
from bigsvm.backends import KernelCounter
from bigsvm.backends.in_memory import BlockBackend
from bigsvm.core.compiled import available_threads, use_threads
from bigsvm.kernels import LANES, Block, Kernel, block_of
from bigsvm.stores.rows import prefetch_map
from bigsvm.stores.store import Dataset


class LocalBackend(BlockBackend):
    """Serves a data set from this process, with numba threads; see `Backend`.

    Parameters
    ----------
    dataset : Dataset
    kernel : Kernel
    resident_bytes : int
        Chunks are kept in memory up to this many bytes. The others are read again in every pass, in
        the background while earlier ones are computed.
    threads : int or None
        None means all cores.
    rows_at_once : int
        See `Backend`.
    """

    def __init__(
        self,
        dataset: Dataset,
        kernel: Kernel,
        resident_bytes: int,
        threads: int | None = None,
        rows_at_once: int = 2**15,
    ) -> None:
        self.n, self.d = dataset.n, dataset.d
        self.rows_at_once = rows_at_once
        self.kernel_values = KernelCounter()
        self._dataset = dataset
        self._kernel = kernel
        self._threads = min(threads or available_threads(), available_threads())
        chunk_bytes = 4 * dataset.chunk_rows * dataset.d
        fitting = resident_bytes // chunk_bytes
        spans = list(dataset.spans())
        self._streamed = spans[fitting:]
        self._stream = ChunkStream(dataset) if self._streamed else None
        self._resident = {
            block.start: block
            for block in prefetch_map(
                lambda span: block_of(dataset.read(*span), span[0]),
                spans[:fitting],
                dataset.n_readers,
            )
        }

    def gather(self, indices: np.ndarray) -> np.ndarray:
        """See `Backend`."""
        indices = np.asarray(indices, np.int64)
        rows = np.empty((len(indices), self.d), np.float32)
        starts = indices // self._dataset.chunk_rows * self._dataset.chunk_rows
        on_disk = np.ones(len(indices), bool)
        for start in np.unique(starts):
            if block := self._resident.get(int(start)):
                here = starts == start
                panel, lane = np.divmod(indices[here] - start, LANES)
                rows[here] = block.panels[panel, :, lane]
                on_disk &= ~here
        if on_disk.any():
            self._dataset.gather(indices[on_disk], rows, np.flatnonzero(on_disk))
        return rows

    def add_linear(self, weights: np.ndarray, out: np.ndarray) -> None:
        """Add the products with weight vectors (outputs, d) of the linear kernel to `out`."""
        with use_threads(self._threads):
            for block in self._blocks():
                kernels.linear_products(block, weights, out)

    def _blocks(self) -> Iterator[Block]:
        yield from self._resident.values()
        if self._stream is not None:
            yield from self._stream.blocks(self._streamed)


class ChunkStream:
    """Reads chunks into panels in the background, reusing the same memory pass after pass.

    Newly allocated memory is slow at first touch; allocated for each chunk, it would cost as much
    time as the reading.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        chunk_rows, d, n_readers = dataset.chunk_rows, dataset.d, dataset.n_readers
        # While one block is computed, each reader fills another.
        shape = (-(-chunk_rows // LANES), d, LANES)
        self._panels = [np.zeros(shape, np.float32) for _ in range(n_readers + 1)]
        self._spaces: SimpleQueue[np.ndarray] = SimpleQueue()
        for _ in range(n_readers):
            self._spaces.put(np.empty((chunk_rows, d), np.float32))

    def blocks(self, spans: list[tuple[int, int]]) -> Iterator[Block]:
        """Yield the chunks at `spans`; each is valid only until the next one is requested."""
        targets = zip(spans, cycle(self._panels), strict=False)
        yield from prefetch_map(lambda item: self._load(*item), targets, self._dataset.n_readers)

    def _load(self, span: tuple[int, int], panels: np.ndarray) -> Block:
        space = self._spaces.get()
        try:
            return Block(*span, self._dataset.read_panels(*span, panels, space))
        finally:
            self._spaces.put(space)
