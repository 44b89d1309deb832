"""Damage to stores and checkpoints: flipped bits, exchanged rows."""

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


def turn_some_rows(store: Path, chance: random.Random) -> None:
    """Change the sign of all values in some rows."""
    import h5py
    import zarr

    opened: Any = h5py.File(store, "r+") if store.is_file() else zarr.open_group(store, mode="r+")
    rows = opened["train/X"]
    begin = chance.randrange(rows.shape[0])
    rows[begin : begin + 50] = -rows[begin : begin + 50]
    if store.is_file():
        opened.close()


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
