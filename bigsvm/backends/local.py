"""The data in this process: chunks kept in memory while they fit, streamed from disk otherwise."""

from collections.abc import Iterator
from itertools import cycle
from queue import SimpleQueue

import numpy as np

from bigsvm import kernels
from bigsvm.backends import KernelCounter
from bigsvm.backends.products import add_products, as_2d
from bigsvm.core.arrays import RowChunks
from bigsvm.core.threads import available_threads, use_threads
from bigsvm.kernels import LANES, Block, Kernel, block_of
from bigsvm.stores.rows import prefetch_map
from bigsvm.stores.store import Dataset


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
        absent = np.ones(len(indices), bool)
        for start in np.unique(starts):
            if block := self._resident.get(int(start)):
                here = starts == start
                panel, lane = np.divmod(indices[here] - start, LANES)
                rows[here] = block.panels[panel, :, lane]
                absent &= ~here
        if absent.any():
            self._dataset.gather(indices[absent], rows, np.flatnonzero(absent))
        return rows

    def columns(self, rows: np.ndarray, out: np.ndarray, slots: np.ndarray) -> None:
        """See `Backend`."""
        self.kernel_values.add_columns(rows, self.n)
        with use_threads(self._threads):
            for block in self._blocks():
                kernels.columns(self._kernel, block, rows, out, slots)

    def matvec(self, rows: np.ndarray | RowChunks, coef: np.ndarray) -> np.ndarray:
        """See `Backend`."""
        self.kernel_values.add_product(self._kernel, rows, coef, self.n)
        columns = as_2d(coef)
        sums = np.zeros((columns.shape[1], self.n))
        self.add_products(rows, columns, sums)
        return sums if coef.ndim == 2 else sums[0]

    def add_products(
        self, rows: np.ndarray | RowChunks, coef: np.ndarray, sums: np.ndarray
    ) -> None:
        """Add those of `matvec` for coefficients (q, sums) to others, of rows before these."""
        with use_threads(self._threads):
            add_products(self._kernel, self._blocks, rows, coef, sums)

    def add_linear(self, weights: np.ndarray, sums: np.ndarray) -> None:
        """The same for weight vectors (sums, d) of the linear kernel."""
        with use_threads(self._threads):
            for block in self._blocks():
                kernels.linear_products(block, weights, sums)

    def _blocks(self) -> Iterator[Block]:
        yield from self._resident.values()
        if self._stream is not None:
            yield from self._stream.blocks(self._streamed)


class ChunkStream:
    """Chunks read and laid out in the background, in the same memory pass after pass.

    Fresh memory is slow at first touch: taken anew for each chunk it costs as much as the reading.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        chunk_rows, d, readers = dataset.chunk_rows, dataset.d, dataset.n_readers
        # One block is computed while each reader fills another.
        shape = (-(-chunk_rows // LANES), d, LANES)
        self._panels = [np.zeros(shape, np.float32) for _ in range(readers + 1)]
        self._spaces: SimpleQueue[np.ndarray] = SimpleQueue()
        for _ in range(readers):
            self._spaces.put(np.empty((chunk_rows, d), np.float32))

    def blocks(self, spans: list[tuple[int, int]]) -> Iterator[Block]:
        """The chunks at `spans` one after the other; each is gone when the next is asked for."""
        wanted = zip(spans, cycle(self._panels), strict=False)
        yield from prefetch_map(lambda item: self._load(*item), wanted, self._dataset.n_readers)

    def _load(self, span: tuple[int, int], panels: np.ndarray) -> Block:
        space = self._spaces.get()
        try:
            return Block(*span, self._dataset.read_panels(*span, panels, space))
        finally:
            self._spaces.put(space)
