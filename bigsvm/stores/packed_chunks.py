"""Compressed chunks of a Zarr array on this machine, decoded straight into memory that is there.

Zarr itself reads, decodes and copies, each into memory of its own; at ten million patterns that
takes half as long again as the decoding, and several chunks' worth of memory.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

# The bits of a NaN that no computation gives.
_UNTOUCHED = np.uint32(0x7FC0DEAD)

Decode = Callable[[bytes | memoryview, np.ndarray], Any]


class PackedChunks:
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


def packed_chunks_of(x: Any) -> PackedChunks | None:
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
    return PackedChunks(x.chunks[0], x.shape[1], lambda chunk: folder / key((chunk, 0)), decompress)
