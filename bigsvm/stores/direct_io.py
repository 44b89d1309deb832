"""Reading chunks of local arrays straight from their files, without Zarr or h5py in between.

Uncompressed rows: a few rows scattered over ten million would otherwise cost a read of all chunks,
and a whole chunk is first copied through newly allocated memory, which is slow to touch.

Zstd chunks: Zarr reads, decodes and copies, each step into memory of its own. At ten million
patterns that takes half as long again as the decoding, and the memory of several chunks.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

# A NaN whose bits no computation produces: it marks memory that decoding has not written.
_UNTOUCHED = np.uint32(0x7FC0DEAD)

Decode = Callable[[bytes | memoryview, np.ndarray], Any]


class ChunkLocation(NamedTuple):
    """Where the rows of one chunk lie, contiguously."""

    file: Path | int  # an HDF5 file stays open, since another file may take over its name
    offset: int


class DirectRows:
    """Reads float32 rows that lie uncompressed in local files.

    Parameters
    ----------
    d, chunk_rows : int
    locate : callable
        Maps the number of a chunk to its location, or to None if it is not stored.
    """

    def __init__(
        self, d: int, chunk_rows: int, locate: Callable[[int], ChunkLocation | None]
    ) -> None:
        self._row_bytes, self._chunk_rows = 4 * d, chunk_rows
        self._locate = lru_cache(maxsize=None)(locate)

    def read(self, start: int, out: np.ndarray) -> bool:
        """Fill `out` with the rows from `start` on; False if they cannot be read directly."""
        while len(out):
            chunk, row = divmod(start, self._chunk_rows)
            here = out[: self._chunk_rows - row]
            if not self._fill(chunk, [row], [here.reshape(-1)]):
                return False
            start, out = start + len(here), out[len(here) :]
        return True

    def pick(self, indices: np.ndarray, out: np.ndarray) -> bool:
        """Fill `out` with the rows at ascending `indices`; False as for `read`."""
        chunks, rows = np.divmod(indices, self._chunk_rows)
        edges = [*np.flatnonzero(np.diff(chunks, prepend=-1)).tolist(), len(out)]
        return all(
            self._fill(int(chunks[low]), rows[low:high].tolist(), list(out[low:high]))
            for low, high in pairwise(edges)
        )

    def _fill(self, chunk: int, rows: list[int], targets: list[np.ndarray]) -> bool:
        """Fill each target from the given row of the chunk on."""
        location = self._locate(chunk)
        if location is None:
            return False
        try:
            with _descriptor(location.file) as descriptor:
                return all(
                    _read_exactly(descriptor, target, location.offset + self._row_bytes * row)
                    for row, target in zip(rows, targets, strict=True)
                )
        except FileNotFoundError:
            return False


@contextmanager
def _descriptor(file: Path | int) -> Iterator[int]:
    if isinstance(file, int):
        yield file
        return
    descriptor = os.open(file, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _read_exactly(descriptor: int, target: np.ndarray, offset: int) -> bool:
    """Fill `target`; False if the file is too short."""
    view = target.view(np.uint8).data
    while view:
        count = os.preadv(descriptor, [view], offset)
        if count == 0:
            return False
        view, offset = view[count:], offset + count
    return True


def direct_rows(x: Any) -> DirectRows | None:
    """A direct reader for an uncompressed Zarr or HDF5 array; None for any other array."""
    if x.dtype != np.dtype("<f4"):
        return None
    if hasattr(x, "metadata"):
        return _in_zarr(x)
    return _in_hdf5(x) if hasattr(x, "id") else None


def _in_hdf5(x: Any) -> DirectRows | None:
    n, d = x.shape
    if x.file.driver != "sec2" or x.file.userblock_size or x.external or x.is_virtual:
        return None
    if x.file.mode != "r":  # written data may not have reached the file yet
        return None
    file = x.file.id.get_vfd_handle()
    if x.chunks is None:
        offset = x.id.get_offset()
        return None if offset is None else DirectRows(d, n, lambda _: ChunkLocation(file, offset))
    if x.id.get_create_plist().get_nfilters() or x.chunks[1] != d:
        return None

    def locate(chunk: int) -> ChunkLocation | None:
        found = x.id.get_chunk_info_by_coord((chunk * x.chunks[0], 0)).byte_offset
        return None if found is None else ChunkLocation(file, found)

    return DirectRows(d, x.chunks[0], locate)


def _in_zarr(x: Any) -> DirectRows | None:
    from zarr.codecs import BytesCodec

    chunk_file = _chunk_files(x)
    if chunk_file is None or list(x.metadata.codecs) != [BytesCodec(endian="little")]:
        return None
    return DirectRows(x.shape[1], x.chunks[0], lambda chunk: ChunkLocation(chunk_file(chunk), 0))


class ZstdChunks:
    """Reads float32 rows within one zstd chunk, decoding into memory that is reused.

    Parameters
    ----------
    chunk_rows, d : int
    locate : callable
        Maps the number of a chunk to its file.
    decode : callable
        Decodes the content of a file into an array.
    """

    def __init__(
        self, chunk_rows: int, d: int, locate: Callable[[int], Path], decode: Decode
    ) -> None:
        self._shape = (chunk_rows, d)
        self._locate = locate
        self._decode = decode
        self._buffers = threading.local()

    def read(self, start: int, stop: int, space: np.ndarray | None = None) -> np.ndarray | None:
        """Rows start to stop, in `space` if it has the shape of a chunk.

        None if the rows span several chunks or the chunk is not stored.
        """
        chunk, first = divmod(start, self._shape[0])
        last = first + stop - start
        if last > self._shape[0]:
            return None
        try:
            path = self._locate(chunk)
            # Only the readers of a pass keep a buffer, and they end with it; other reads are rare.
            encoded = path.read_bytes() if space is None else self._read_file(path)
        except FileNotFoundError:
            return None
        if space is None or space.shape != self._shape:
            space = np.empty(self._shape, np.float32)
        end = space[-1:, -1:].view(np.uint32)
        end[:] = _UNTOUCHED
        self._decode(encoded, space)
        if end == _UNTOUCHED:  # otherwise the previous content of `space` would pass for rows
            raise ValueError(f"chunk {chunk} holds too little")
        return space[first:last]

    def _read_file(self, path: Path) -> memoryview:
        """The content of a file in this thread's buffer, since new memory is slow to touch."""
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if len(getattr(self._buffers, "bytes", b"")) < size:
                self._buffers.bytes = bytearray(size)
            content = memoryview(self._buffers.bytes)[:size]
            read = 0
            while read < size and (more := file.readinto(content[read:])):
                read += more
        return content[:read]


def zstd_chunks(x: Any) -> ZstdChunks | None:
    """A direct reader for a local Zarr array compressed with zstd only; None for other arrays."""
    if not hasattr(x, "metadata") or x.dtype != np.dtype("<f4"):
        return None
    from numcodecs.zstd import decompress
    from zarr.codecs import BytesCodec, ZstdCodec

    chunk_file = _chunk_files(x)
    if chunk_file is None:
        return None
    to_bytes, *compressors = x.metadata.codecs
    if to_bytes != BytesCodec(endian="little") or [*map(type, compressors)] != [ZstdCodec]:
        return None
    return ZstdChunks(x.chunks[0], x.shape[1], chunk_file, decompress)


def _chunk_files(x: Any) -> Callable[[int], Path] | None:
    """The files of the chunks of a local Zarr v3 array whose chunks hold whole rows, by number."""
    from zarr.storage import LocalStore

    if x.metadata.zarr_format != 3 or not isinstance(x.store, LocalStore):
        return None
    if x.chunks[1] != x.shape[1]:
        return None
    folder, key = Path(x.store.root) / x.path, x.metadata.encode_chunk_key
    return lambda chunk: folder / key((chunk, 0))
