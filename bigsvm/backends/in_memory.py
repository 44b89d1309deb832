"""Backends for a subset of the patterns, such as the hot set: held in memory, or fetched."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

import numpy as np

from bigsvm import kernels
from bigsvm.backends import Backend, KernelCounter
from bigsvm.backends.products import GatheredRows, add_products, as_2d
from bigsvm.core.arrays import RowChunks
from bigsvm.core.compiled import use_threads
from bigsvm.kernels import Block, Kernel, block_of


class BlockBackend(ABC):
    """Columns and products over the blocks that a subclass provides."""

    n: int
    kernel_values: KernelCounter
    _kernel: Kernel
    _threads: int | None = None  # as many as the caller uses

    def columns(self, rows: np.ndarray, out: np.ndarray, slots: np.ndarray) -> None:
        """See `Backend`."""
        self.kernel_values.add_columns(rows, self.n)
        with use_threads(self._threads):
            for block in self._blocks():
                kernels.columns(self._kernel, block, rows, out, slots)

    def matvec(self, rows: np.ndarray | RowChunks, coef: np.ndarray) -> np.ndarray:
        """See `Backend`."""
        self.kernel_values.add_product(self._kernel, rows, coef, self.n)
        coef_2d = as_2d(coef)
        out = np.zeros((coef_2d.shape[1], self.n))
        self.add_products(rows, coef_2d, out)
        return out if coef.ndim == 2 else out[0]

    def add_products(self, rows: np.ndarray | RowChunks, coef: np.ndarray, out: np.ndarray) -> None:
        """Add the products of `matvec` for coefficients (q, outputs) to `out` (outputs, n)."""
        with use_threads(self._threads):
            add_products(self._kernel, self._blocks, rows, coef, out)

    @abstractmethod
    def _blocks(self) -> Iterable[Block]:
        """The rows, laid out for the kernels."""


class InMemoryBackend(BlockBackend):
    """Serves rows (n, d) float32 that are held in memory; see `Backend`.

    `kernel_values` is the counter of the training that the rows belong to.
    """

    rows_at_once = 2**15

    def __init__(
        self, rows: np.ndarray, kernel: Kernel, kernel_values: KernelCounter | None = None
    ) -> None:
        self.kernel_values = kernel_values or KernelCounter()
        self.n, self.d = rows.shape
        self._rows = rows
        self._block = block_of(rows)
        self._kernel = kernel

    def gather(self, indices: np.ndarray) -> np.ndarray:
        """See `Backend`."""
        return self._rows[indices]

    def _blocks(self) -> Iterable[Block]:
        return [self._block]


class SubsetBackend(BlockBackend):
    """Serves patterns of another backend that are too many to hold in memory; see `Backend`.

    The same bits as from memory, but every batch of columns gathers all the rows again.
    """

    def __init__(self, backend: Backend, index: np.ndarray, kernel: Kernel) -> None:
        self.n, self.d = len(index), backend.d
        self.rows_at_once = backend.rows_at_once
        self.kernel_values = backend.kernel_values
        self._backend, self._index = backend, index
        self._kernel = kernel

    def gather(self, indices: np.ndarray) -> np.ndarray:
        """See `Backend`."""
        return self._backend.gather(self._index[indices])

    def _blocks(self) -> Iterator[Block]:
        start = 0
        for chunk in GatheredRows(self._backend, self._index, self.rows_at_once):
            yield block_of(chunk, start)
            start += len(chunk)
