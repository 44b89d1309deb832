"""Damage to stores and checkpoints: flipped bits, exchanged rows."""

import json
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def changed_data(store: Path, scratch: Path, chance: random.Random) -> Iterator[None]:
    """Damaged data, or other data that is as good, in the place of the data inside the block."""
    whole, other = scratch / "whole", scratch / f"other{store.suffix}"
    copy(store, whole)
    if chance.random() < 0.3:
        flip_a_bit(largest_file(store), chance)
    else:
        copy(store, other)
        turn_some_rows(other, chance)
        for file in [other, *other.rglob("*")]:  # in place: it may be open
            if file.is_file():
                (store / file.relative_to(other)).write_bytes(file.read_bytes())
        remove(other)
    yield
    remove(store)
    whole.rename(store)


@contextmanager
def lost_chunk(store: Path, chance: random.Random) -> Iterator[None]:
    """A store without one of its chunks inside the block; of HDF5, without the end of the file."""
    if store.is_file():
        chunk, cut = store, chance.randrange(1, store.stat().st_size)
    else:
        chunks = [file for file in sorted((store / "train").rglob("c/**/*")) if file.is_file()]
        chunk, cut = chance.choice(chunks), 0
    content = chunk.read_bytes()
    chunk.unlink()
    if cut:
        chunk.write_bytes(content[:cut])
    yield
    chunk.write_bytes(content)


@contextmanager
def renamed_classes(store: Path, scratch: Path) -> Iterator[None]:
    """A store whose labels have other names inside the block.

    Another one in its place, since a worker may still have the file open, and HDF5 locked it.
    """
    whole, other = scratch / "whole", scratch / f"other{store.suffix}"
    copy(store, other)
    with opened(other) as groups:
        attributes = groups["train"].attrs
        words = ["good", "bad"]
        as_text = isinstance(attributes["classes"], str)
        attributes["classes"] = json.dumps(words) if as_text else words
    store.rename(whole)
    other.rename(store)
    yield
    remove(store)
    whole.rename(store)


@contextmanager
def opened(store: Path) -> Iterator[Any]:
    """The root group of a store, to be changed."""
    import h5py
    import zarr

    if store.is_file():
        with h5py.File(store, "r+") as file:
            yield file
    else:
        yield zarr.open_group(store, mode="r+")


def turn_some_rows(store: Path, chance: random.Random) -> None:
    """Change the sign of all values in some rows."""
    with opened(store) as groups:
        rows = groups["train/X"]
        begin = chance.randrange(rows.shape[0])
        rows[begin : begin + 50] = -rows[begin : begin + 50]


def flip_a_bit(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def largest_file(path: Path) -> Path:
    files = [file for file in [path, *path.rglob("*")] if file.is_file()]
    return max(files, key=lambda file: file.stat().st_size)


def copy(source: Path, target: Path) -> None:
    (shutil.copytree if source.is_dir() else shutil.copy)(source, target)


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
