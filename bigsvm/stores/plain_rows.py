"""Rows of an uncompressed array, read straight from where they lie in its files.

A few rows scattered over an array of ten million would otherwise cost a read of all its chunks, and
a whole chunk takes a detour through fresh memory, which is slow to touch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class Stretch(NamedTuple):
    """Where the rows of one chunk lie, one after the other."""

    file: Path | int  # an HDF5 file is held open: another may get its name meanwhile
    offset: int


class PlainRows:
    """Reads rows of float32 that lie uncompressed in files of this machine.

    Parameters
    ----------
    d, chunk_rows : int
    locate : callable
        Where the chunk of a number is; None where it is not stored.
    """

    def __init__(self, d: int, chunk_rows: int, locate: Callable[[int], Stretch | None]) -> None:
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


def plain_rows_of(x: Any) -> PlainRows | None:
    """How to read the rows of a Zarr or HDF5 array directly; None where that cannot be done."""
    if x.dtype != np.dtype("<f4"):
        return None
    if hasattr(x, "metadata"):
        return _in_zarr(x)
    return _in_hdf5(x) if hasattr(x, "id") else None


def _in_hdf5(x: Any) -> PlainRows | None:
    n, d = x.shape
    if x.file.driver != "sec2" or x.file.userblock_size or x.external or x.is_virtual:
        return None
    if x.file.mode != "r":  # what was written may still be in memory only
        return None
    file = x.file.id.get_vfd_handle()
    if x.chunks is None:
        offset = x.id.get_offset()
        return None if offset is None else PlainRows(d, n, lambda chunk: Stretch(file, offset))
    if x.id.get_create_plist().get_nfilters() or x.chunks[1] != d:
        return None

    def locate(chunk: int) -> Stretch | None:
        found = x.id.get_chunk_info_by_coord((chunk * x.chunks[0], 0)).byte_offset
        return None if found is None else Stretch(file, found)

    return PlainRows(d, x.chunks[0], locate)


def _in_zarr(x: Any) -> PlainRows | None:
    from zarr.codecs import BytesCodec
    from zarr.storage import LocalStore

    d = x.shape[1]
    if x.metadata.zarr_format != 3 or not isinstance(x.store, LocalStore):
        return None
    if list(x.metadata.codecs) != [BytesCodec(endian="little")] or x.chunks[1] != d:
        return None
    folder = Path(x.store.root) / x.path
    key = x.metadata.encode_chunk_key
    return PlainRows(d, x.chunks[0], lambda chunk: Stretch(folder / key((chunk, 0)), 0))
