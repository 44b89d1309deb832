"""The rows of a stored array, read a span at a time by the shortest way there is."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from bigsvm.core.errors import UserError
from bigsvm.stores.direct_io import direct_rows, zstd_chunks
from bigsvm.stores.group import wrap_read_errors

T = TypeVar("T")
R = TypeVar("R")

CHUNK_BYTES = 8 * 2**20
# Rows on their way from a file to the kernels at once: they stay in the second-level cache.
PIECE_BYTES = 512 * 1024
# Of so many rows or more, a single one is read by itself where the file allows it.
_FEW = 50


def rows_that_fit(size: int, d: int, itemsize: int = 4) -> int:
    """How many rows of d values make about `size` bytes; at least one."""
    return max(1, size // (d * itemsize))


class StoredRows:
    """Rows that are read from a stored array, and hold to what was read before.

    Parameters
    ----------
    x : array
        Zarr, HDF5, or any other that has `chunks` and reads rows when it is sliced.
    where : str
        For messages.
    remote : bool
        A server has it, not this machine.
    prepared : bool
        It is chunked as `prepare` does it.

    Attributes
    ----------
    n, d : int
        Number of rows and of features.
    path : str
        For messages.
    chunk_rows : int
        Rows to read at a time: the stored chunk; about 8 MiB where an array of the user's own is
        not chunked, or in so small chunks that reading them one by one would crawl.
    stored_chunk_bytes : int
        What has to be decoded at once to read a single row.
    readers : int
        How many chunks are best read at once: a remote server takes its time, a disk a core.
    """

    def __init__(self, x: Any, where: str, *, remote: bool, prepared: bool) -> None:
        self._x = x
        self._checksums: dict[tuple[int, int], int] = {}
        self.path = where
        self.n, self.d = (int(size) for size in x.shape)
        chunks = x.chunks or (rows_that_fit(CHUNK_BYTES, self.d), self.d)
        stored_rows = min(int(chunks[0]), self.n)
        # A chunk is decoded whole, also where it reaches beyond the array.
        width = -(-self.d // int(chunks[1])) * int(chunks[1])
        self.stored_chunk_bytes = int(chunks[0]) * width * x.dtype.itemsize
        together = 1 if prepared else max(1, CHUNK_BYTES // (stored_rows * self.d * 4))
        self.chunk_rows = min(stored_rows * together, self.n)
        of_32_mib = 4 * CHUNK_BYTES // (4 * self.chunk_rows * self.d)
        self.n_readers = max(2, min(8, of_32_mib)) if remote else 2
        self._plain = None if remote else direct_rows(x)
        self._packed = None if remote else zstd_chunks(x)

    def spans(self) -> Iterator[tuple[int, int]]:
        """Consecutive (start, stop) that cover all rows, a chunk each."""
        for start in range(0, self.n, self.chunk_rows):
            yield start, min(start + self.chunk_rows, self.n)

    def gather(
        self, indices: np.ndarray, out: np.ndarray | None = None, at: np.ndarray | None = None
    ) -> np.ndarray:
        """The rows `indices` in the order asked, (q, d) float32; each chunk is read once.

        With `out` they are written there, to the rows `at` of it.
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
        spans = list(zip(np.split(ordered, edges), np.split(order, edges), strict=True))

        def pick(span: tuple[np.ndarray, np.ndarray]) -> None:
            wanted, places = span
            first, stop = int(wanted[0]), int(wanted[-1]) + 1
            if self._plain is not None and _FEW * len(wanted) < stop - first:
                picked = np.empty((len(wanted), self.d), np.float32)
                if self._plain.pick(wanted, picked):
                    rows[places] = picked
                    return
            chunk = first // self.chunk_rows * self.chunk_rows
            if (whole := (chunk, min(chunk + self.chunk_rows, self.n))) in self._checksums:
                first, stop = whole  # which can be checked
            block = self.read(first, stop)
            for some in range(0, len(wanted), few := rows_that_fit(PIECE_BYTES, self.d)):
                # Of all at once there would be a copy in between, as large as the chunk.
                rows[places[some : some + few]] = block[wanted[some : some + few] - first]

        for _ in prefetch_map(pick, spans, self.n_readers):
            pass
        return rows

    def verify_unchanged(self, indices: np.ndarray) -> None:
        """Refuse rows that are not what they were when this began.

        Those that `gather` picks one by one are not checked there. Whatever a solver does with them
        ends in a pass, which reads and checks all that is not in memory; a model does not.
        """
        if self._plain is None:
            return
        chunks = np.unique(np.asarray(indices) // self.chunk_rows) * self.chunk_rows
        spans = [(start, min(start + self.chunk_rows, self.n)) for start in chunks.tolist()]
        for _ in prefetch_map(lambda span: self.read(*span), spans, self.n_readers):
            pass

    def read(self, start: int, stop: int, space: np.ndarray | None = None) -> np.ndarray:
        """Rows start to stop, a C-contiguous (stop - start, d) float32 array.

        It may be the first rows of `space`, if that is given: fresh memory is slow at first touch.
        """
        if not 0 <= start <= stop <= self.n:
            raise IndexError(f"rows {start} to {stop} of {self.path}, which has {self.n}")
        with wrap_read_errors(f"{self.path}, rows {start} to {stop}"):
            rows = self._read(start, stop, space)
        if (start, stop) in self._checksums:
            self._check(start, stop, _checksum(rows))
        return rows

    def read_panels(
        self, start: int, stop: int, panels: np.ndarray, space: np.ndarray
    ) -> np.ndarray:
        """Rows start to stop laid out as panels, in the first of `panels`.

        Where the file allows it they come in pieces that stay in the processor's cache from the
        file to the panel: through main memory it takes twice as long. `space` holds them meanwhile.
        """
        from bigsvm.kernels import LANES, fill_panels
        from bigsvm.stores.checksum import Checksum  # compiled code: not before it is wanted

        panels = panels[: -(-(stop - start) // LANES)]
        panels[-1] = 0.0
        piece = max(1, PIECE_BYTES // (4 * self.d * LANES)) * LANES
        at_once = stop - start if self._plain is None else piece
        found = Checksum()
        with wrap_read_errors(f"{self.path}, rows {start} to {stop}"):
            for begin in range(start, stop, at_once):
                rows = self._read(begin, min(begin + at_once, stop), space)
                for first in range(0, len(rows), piece):
                    some = rows[first : first + piece]
                    found.add(some)
                    fill_panels(some, panels[(begin - start + first) // LANES :])
        self._check(start, stop, found.value)
        return panels

    def _check(self, start: int, stop: int, found: int) -> None:
        if self._checksums.get((start, stop), found) != found:
            raise UserError(
                f"{self.path}: rows {start} to {stop} are not what they were when this began; "
                "leave the data alone while it is in use"
            )

    def _read(self, start: int, stop: int, space: np.ndarray | None) -> np.ndarray:
        if self._plain is not None:
            count = stop - start
            out = np.empty((count, self.d), np.float32) if space is None else space[:count]
            if self._plain.read(start, out):
                return out
        if self._packed is not None:
            unpacked = self._packed.read(start, stop, space)
            if unpacked is not None:
                return unpacked
        block = self._x[start:stop]
        with np.errstate(over="ignore"):  # infinities are found, and named, by `fingerprint`
            return np.ascontiguousarray(block, dtype=np.float32)

    def record_checksum(self, start: int, stop: int, rows: np.ndarray) -> None:
        """From now on, `read` of this very span must give these rows."""
        self._checksums[start, stop] = _checksum(rows)

    @property
    def checksums(self) -> dict[tuple[int, int], int]:
        """The recorded checksums by span, for `expect` in another process."""
        return dict(self._checksums)

    def expect(self, remembered: Mapping[tuple[int, int], int]) -> None:
        """Hold `read` to what another process has seen here."""
        self._checksums.update(remembered)

    def release_file(self) -> None:
        """Before it is closed: it is known by its number, which may soon be another's."""
        self._plain = None


def _checksum(rows: np.ndarray) -> int:
    from bigsvm.stores.checksum import checksum  # compiled code: not before it is wanted

    return checksum(rows)


def prefetch_map(function: Callable[[T], R], items: Iterable[T], ahead: int = 1) -> Iterator[R]:
    """``map(function, items)``, with up to `ahead` results on their way while one is used."""
    with ThreadPoolExecutor(max_workers=ahead) as background:
        waiting: deque[Future[R]] = deque()
        try:
            for item in items:
                waiting.append(background.submit(function, item))
                if len(waiting) > ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:  # nobody wants them any more
                future.cancel()
