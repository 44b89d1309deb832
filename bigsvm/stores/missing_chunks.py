"""Chunks that are not stored: both formats read them as the fill value, without a word.

That is how they leave out what is all zeros, and also what a chunk looks like that was lost on the
way here. In a store of ours every chunk is written, and a lost one is an error.
"""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path
from typing import Any


def missing_chunks(array: Any) -> tuple[int, int]:
    """How many chunks of an array are not there, and how many it should have.

    Those of a remote store are not counted: not every server lists what it has.
    """
    if hasattr(array, "metadata"):
        return _in_zarr(array)
    if array.chunks is None or array.is_virtual:
        return 0, 1
    expected = math.prod(_steps(array.shape, array.chunks))
    return expected - array.id.get_num_chunks(), expected


def _in_zarr(array: Any) -> tuple[int, int]:
    from zarr.storage import LocalStore

    if not isinstance(array.store, LocalStore):
        return 0, 1
    folder = Path(array.store.root) / array.path
    # Of a sharded array this is the grid of its shards: those are the files.
    steps = _steps(array.shape, array.metadata.chunk_grid.chunk_shape)
    key = array.metadata.encode_chunk_key
    places = product(*map(range, steps))
    return sum(not (folder / key(place)).exists() for place in places), math.prod(steps)


def _steps(shape: tuple[int, ...], chunks: tuple[int, ...]) -> list[int]:
    return [-(-size // step) for size, step in zip(shape, chunks, strict=True)]
