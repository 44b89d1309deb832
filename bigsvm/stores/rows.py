"""The rows of a stored array, read one span at a time by the fastest way its format allows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import xxhash

from bigsvm.core.errors import UserError
from bigsvm.stores.direct_io import direct_rows, zstd_chunks
from bigsvm.stores.group import wrap_read_errors

T = TypeVar("T")
R = TypeVar("R")

CHUNK_BYTES = 8 * 2**20
# Rows on the way from a file to the kernels are handled in pieces that stay in the L2 cache.
PIECE_BYTES = 512 * 1024
# Rows are read one by one if the span they lie in is more than this many times their number.
_SPARSE = 50


def rows_that_fit(size: int, d: int, itemsize: int = 4) -> int:
    """How many rows of d values fit in `size` bytes; at least one."""
    return max(1, size // (d * itemsize))


class StoredRows:
    """Reads rows of a stored array, and detects changes since they were first read.

    Parameters
    ----------
    x : array
        Zarr, HDF5, or any array that has `chunks` and reads rows when it is sliced.
    where : str
        For messages.
    remote : bool
        It is read from a server, not from this machine.
    prepared : bool
        It is chunked as `prepare` chunks arrays.

    Attributes
    ----------
    n, d : int
        Number of rows and of features.
    path : str
        For messages.
    chunk_rows : int
        Rows to read at a time: the stored chunk, or about 8 MiB if an array of the user's own has
        no chunks, or chunks so small that reading them one by one would be slow.
    stored_chunk_bytes : int
        What has to be decoded at once to read a single row.
    n_readers : int
        How many chunks to read concurrently: more from a server, to hide its latency, than from a
        disk, where decoding takes a core.
    """

    def __init__(self, x: Any, where: str, *, remote: bool, prepared: bool) -> None:
        self._x = x
        self._checksums: dict[tuple[int, int], int] = {}
        self.path = where
        self.n, self.d = (int(size) for size in x.shape)
        chunks = x.chunks or (rows_that_fit(CHUNK_BYTES, self.d), self.d)
        stored_rows = min(int(chunks[0]), self.n)
        # A chunk is decoded whole, even if it extends beyond the array.
        width = -(-self.d // int(chunks[1])) * int(chunks[1])
        self.stored_chunk_bytes = int(chunks[0]) * width * x.dtype.itemsize
        together = 1 if prepared else max(1, CHUNK_BYTES // (stored_rows * self.d * 4))
        self.chunk_rows = min(stored_rows * together, self.n)
        chunks_in_32_mib = 4 * CHUNK_BYTES // (4 * self.chunk_rows * self.d)
        self.n_readers = max(2, min(8, chunks_in_32_mib)) if remote else 2
        self._direct = None if remote else direct_rows(x)
        self._zstd = None if remote else zstd_chunks(x)

    def spans(self) -> Iterator[tuple[int, int]]:
        """Yield consecutive (start, stop) that cover all rows, one for each chunk."""
        for start in range(0, self.n, self.chunk_rows):
            yield start, min(start + self.chunk_rows, self.n)

    def gather(
        self, indices: np.ndarray, out: np.ndarray | None = None, at: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the rows `indices` in the order given, (q, d) float32; reads each chunk once.

        With `out`, write them to its rows `at` instead.
        """
        indices = np.asarray(indices, dtype=np.int64)
        rows = np.empty((len(indices), self.d), dtype=np.float32) if out is None else out
        if len(indices) == 0:
            return rows
        order = np.argsort(indices, kind="stable")
        ordered = indices[order]
        if ordered[0] < 0 or ordered[-1] >= self.n:
            raise IndexError(f"row {ordered[0]} or {ordered[-1]} of {self.path}: it has {self.n}")
        edges = np.flatnonzero(np.diff(ordered // self.chunk_rows)) + 1
        order = order if at is None else at[order]
        by_chunk = list(zip(np.split(ordered, edges), np.split(order, edges), strict=True))

        def pick(of_chunk: tuple[np.ndarray, np.ndarray]) -> None:
            chosen, targets = of_chunk
            first, stop = int(chosen[0]), int(chosen[-1]) + 1
            if self._direct is not None and _SPARSE * len(chosen) < stop - first:
                picked = np.empty((len(chosen), self.d), np.float32)
                if self._direct.pick(chosen, picked):
                    rows[targets] = picked
                    return
            chunk = first // self.chunk_rows * self.chunk_rows
            if (whole := (chunk, min(chunk + self.chunk_rows, self.n))) in self._checksums:
                first, stop = whole  # only whole chunks can be verified
            block = self.read(first, stop)
            # In pieces, because indexing all at once would make a copy as large as the chunk.
            for some in range(0, len(chosen), few := rows_that_fit(PIECE_BYTES, self.d)):
                rows[targets[some : some + few]] = block[chosen[some : some + few] - first]

        for _ in prefetch_map(pick, by_chunk, self.n_readers):
            pass
        return rows

    def verify_unchanged(self, indices: np.ndarray) -> None:
        """Raise UserError if the chunks of these rows have changed since they were first read.

        `gather` does not verify rows that it reads one by one. In training that is no loss, since a
        pass verifies everything that is not in memory; before rows enter a model, call this.
        """
        if self._direct is None:
            return
        chunks = np.unique(np.asarray(indices) // self.chunk_rows) * self.chunk_rows
        spans = [(start, min(start + self.chunk_rows, self.n)) for start in chunks.tolist()]
        for _ in prefetch_map(lambda span: self.read(*span), spans, self.n_readers):
            pass

    def read(self, start: int, stop: int, space: np.ndarray | None = None) -> np.ndarray:
        """Return rows start to stop, a C-contiguous (stop - start, d) float32 array.

        The result may be a view of `space`, if that is given: newly allocated memory is slow at
        first touch.
        """
        if not 0 <= start <= stop <= self.n:
            raise IndexError(f"rows {start} to {stop} of {self.path}, which has {self.n}")
        with wrap_read_errors(f"{self.path}, rows {start} to {stop}"):
            rows = self._read(start, stop, space)
        if (start, stop) in self._checksums:
            self._verify(start, stop, _checksum(rows))
        return rows

    def read_panels(
        self, start: int, stop: int, panels: np.ndarray, space: np.ndarray
    ) -> np.ndarray:
        """Read rows start to stop into the first of `panels`, in panel layout.

        Uncompressed rows are read in pieces that stay in the processor's cache on their way from
        the file to the panel, which takes half the time of going through main memory. `space` is
        the buffer they are read into.
        """
        from bigsvm.kernels import LANES, fill_panels  # compiled: `--help` must not wait for it

        panels = panels[: -(-(stop - start) // LANES)]
        panels[-1] = 0.0
        piece = max(1, PIECE_BYTES // (4 * self.d * LANES)) * LANES
        at_once = stop - start if self._direct is None else piece
        checksum = xxhash.xxh3_128()
        with wrap_read_errors(f"{self.path}, rows {start} to {stop}"):
            for begin in range(start, stop, at_once):
                rows = self._read(begin, min(begin + at_once, stop), space)
                for first in range(0, len(rows), piece):
                    some = rows[first : first + piece]
                    checksum.update(some.data)
                    fill_panels(some, panels[(begin - start + first) // LANES :])
        self._verify(start, stop, checksum.intdigest())
        return panels

    def _verify(self, start: int, stop: int, found: int) -> None:
        if self._checksums.get((start, stop), found) != found:
            raise UserError(
                f"{self.path}: rows {start} to {stop} are not what they were when this began; "
                "leave the data alone while it is in use"
            )

    def _read(self, start: int, stop: int, space: np.ndarray | None) -> np.ndarray:
        if self._direct is not None:
            count = stop - start
            out = np.empty((count, self.d), np.float32) if space is None else space[:count]
            if self._direct.read(start, out):
                return out
        if self._zstd is not None:
            decoded = self._zstd.read(start, stop, space)
            if decoded is not None:
                return decoded
        block = self._x[start:stop]
        with np.errstate(over="ignore"):  # `finite_chunks` reports infinities by row and column
            return np.ascontiguousarray(block, dtype=np.float32)

    def record_checksum(self, start: int, stop: int, rows: np.ndarray) -> None:
        """Require that every later `read` of exactly this span returns these rows."""
        self._checksums[start, stop] = _checksum(rows)

    @property
    def checksums(self) -> dict[tuple[int, int], int]:
        """The recorded checksums by span, for `expect_checksums` in another process."""
        return dict(self._checksums)

    def expect_checksums(self, checksums: Mapping[tuple[int, int], int]) -> None:
        """Require that `read` returns the rows that another process has recorded."""
        self._checksums.update(checksums)

    def release_file(self) -> None:
        """Stop direct reads before the file is closed and its descriptor may be reused."""
        self._direct = None


def _checksum(rows: np.ndarray) -> int:
    """A checksum of C-contiguous rows, cheap enough to be taken of every chunk in every pass."""
    return xxhash.xxh3_128_intdigest(rows.data)


def prefetch_map(function: Callable[[T], R], items: Iterable[T], ahead: int = 1) -> Iterator[R]:
    """``map(function, items)`` that computes up to `ahead` results in background threads."""
    with ThreadPoolExecutor(max_workers=ahead) as background:
        pending: deque[Future[R]] = deque()
        try:
            for item in items:
                pending.append(background.submit(function, item))
                if len(pending) > ahead:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:  # the consumer stopped early
                future.cancel()
