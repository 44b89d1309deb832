"""Rows of an uncompressed array, read straight from where they lie in its files.

A few rows scattered over an array of ten million would otherwise cost a read of all its chunks, and
a whole chunk takes a detour through fresh memory, which is slow to touch.
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


class ChunkLocation(NamedTuple):
    """Where the rows of one chunk lie, one after the other."""

    file: Path | int  # an HDF5 file is held open: another may get its name meanwhile
    offset: int


class DirectRows:
    """Reads rows of float32 that lie uncompressed in files of this machine.

    Parameters
    ----------
    d, chunk_rows : int
    locate : callable
        Where the chunk of a number is; None where it is not stored.
    """

    def __init__(
        self, d: int, chunk_rows: int, locate: Callable[[int], ChunkLocation | None]
    ) -> None:
        self._row_bytes, self._chunk_rows = 4 * d, chunk_rows
        self._locate = lru_cache(maxsize=None)(locate)

    def read(self, start: int, out: np.ndarray) -> bool:
        """Fill `out` with the rows from `start` on; False where they cannot be had this way."""
        while len(out):
            chunk, line = divmod(start, self._chunk_rows)
            here = out[: self._chunk_rows - line]
            if not self._fill(chunk, [line], [here.reshape(-1)]):
                return False
            start, out = start + len(here), out[len(here) :]
        return True

    def pick(self, indices: np.ndarray, out: np.ndarray) -> bool:
        """Fill `out` with the rows at `indices`, in ascending order; False as for `read`."""
        chunks, lines = np.divmod(indices, self._chunk_rows)
        edges = [*np.flatnonzero(np.diff(chunks, prepend=-1)).tolist(), len(out)]
        return all(
            self._fill(int(chunks[low]), lines[low:high].tolist(), list(out[low:high]))
            for low, high in pairwise(edges)
        )

    def _fill(self, chunk: int, lines: list[int], pieces: list[np.ndarray]) -> bool:
        """Fill each piece from a line of the chunk on."""
        stretch = self._locate(chunk)
        if stretch is None:
            return False
        try:
            with _descriptor(stretch.file) as descriptor:
                return all(
                    _read_whole(descriptor, piece, stretch.offset + self._row_bytes * line)
                    for line, piece in zip(lines, pieces, strict=True)
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


def _read_whole(descriptor: int, piece: np.ndarray, place: int) -> bool:
    view = piece.view(np.uint8).data
    while view:
        count = os.preadv(descriptor, [view], place)
        if count == 0:
            return False
        view, place = view[count:], place + count
    return True


def direct_rows(x: Any) -> DirectRows | None:
    """How to read the rows of a Zarr or HDF5 array directly; None where that cannot be done."""
    if x.dtype != np.dtype("<f4"):
        return None
    if hasattr(x, "metadata"):
        return _in_zarr(x)
    return _in_hdf5(x) if hasattr(x, "id") else None


def _in_hdf5(x: Any) -> DirectRows | None:
    n, d = x.shape
    if x.file.driver != "sec2" or x.file.userblock_size or x.external or x.is_virtual:
        return None
    if x.file.mode != "r":  # what was written may still be in memory only
        return None
    file = x.file.id.get_vfd_handle()
    if x.chunks is None:
        offset = x.id.get_offset()
        return (
            None if offset is None else DirectRows(d, n, lambda chunk: ChunkLocation(file, offset))
        )
    if x.id.get_create_plist().get_nfilters() or x.chunks[1] != d:
        return None

    def locate(chunk: int) -> ChunkLocation | None:
        found = x.id.get_chunk_info_by_coord((chunk * x.chunks[0], 0)).byte_offset
        return None if found is None else ChunkLocation(file, found)

    return DirectRows(d, x.chunks[0], locate)


def _in_zarr(x: Any) -> DirectRows | None:
    from zarr.codecs import BytesCodec
    from zarr.storage import LocalStore

    d = x.shape[1]
    if x.metadata.zarr_format != 3 or not isinstance(x.store, LocalStore):
        return None
    if list(x.metadata.codecs) != [BytesCodec(endian="little")] or x.chunks[1] != d:
        return None
    folder = Path(x.store.root) / x.path
    key = x.metadata.encode_chunk_key
    return DirectRows(d, x.chunks[0], lambda chunk: ChunkLocation(folder / key((chunk, 0)), 0))


# The bits of a NaN that no computation gives.
_UNTOUCHED = np.uint32(0x7FC0DEAD)

Decode = Callable[[bytes | memoryview, np.ndarray], Any]


class ZstdChunks:
    """Reads rows of float32 that lie within one chunk.

    Parameters
    ----------
    chunk_rows, d : int
    locate : callable
        The file of the chunk of a number.
    decode : callable
        Writes the content of a file to an array.
    """

    def __init__(
        self, chunk_rows: int, d: int, locate: Callable[[int], Path], decode: Decode
    ) -> None:
        self._shape = (chunk_rows, d)
        self._locate = locate
        self._decode = decode
        self._kept = threading.local()

    def read(self, start: int, stop: int, space: np.ndarray | None = None) -> np.ndarray | None:
        """Rows start to stop, in `space` where the chunk fits; None where this way is barred."""
        chunk, first = divmod(start, self._shape[0])
        last = first + stop - start
        if last > self._shape[0]:
            return None
        try:
            # Kept memory is for the readers of a pass, who end with it; others read now and then.
            path = self._locate(chunk)
            packed = path.read_bytes() if space is None else self._packed(path)
        except FileNotFoundError:
            return None
        if space is None or space.shape != self._shape:
            space = np.empty(self._shape, np.float32)
        end = space[-1:, -1:].view(np.uint32)
        end[:] = _UNTOUCHED
        self._decode(packed, space)
        if end == _UNTOUCHED:  # what stood there before must not pass for rows
            raise ValueError(f"chunk {chunk} holds too little")
        return space[first:last]

    def _packed(self, path: Path) -> memoryview:
        """The content of a file, in memory that is there already: fresh memory is slow."""
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if len(getattr(self._kept, "bytes", b"")) < size:
                self._kept.bytes = bytearray(size)
            content = memoryview(self._kept.bytes)[:size]
            read = 0
            while read < size and (more := file.readinto(content[read:])):
                read += more
        return content[:read]


def zstd_chunks(x: Any) -> ZstdChunks | None:
    """How to read a Zarr array this way; None where it is stored in another way."""
    if not hasattr(x, "metadata"):
        return None  # it is none of Zarr's
    from numcodecs.zstd import decompress
    from zarr.codecs import BytesCodec, ZstdCodec
    from zarr.storage import LocalStore

    if x.metadata.zarr_format != 3 or not isinstance(x.store, LocalStore):
        return None
    to_bytes, *compressors = x.metadata.codecs
    if x.dtype != np.dtype("<f4") or x.chunks[1] != x.shape[1]:
        return None
    if to_bytes != BytesCodec(endian="little") or [*map(type, compressors)] != [ZstdCodec]:
        return None
    folder, key = Path(x.store.root) / x.path, x.metadata.encode_chunk_key
    return ZstdChunks(x.chunks[0], x.shape[1], lambda chunk: folder / key((chunk, 0)), decompress)
