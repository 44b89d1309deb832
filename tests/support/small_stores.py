"""Small stores, and files of the user's own, for the tests of the store."""

from pathlib import Path

import h5py
import numpy as np
import zarr

from bigsvm.stores.writer import StoreMetadata, StoreWriter

FORMATS = ("s.zarr", "s.h5", "s.hdf5")


def some_rows(n: int, d: int = 7) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(n + d)
    X = generator.normal(size=(n, d)).astype(np.float32)
    y = np.where(np.arange(n) % 3 == 0, 1, -1).astype(np.int8)
    return X, y


def write(path: Path, n: int = 100, chunk_rows: int = 32, batch: int = 13, **options) -> Path:
    X, y = some_rows(n)
    about = options.pop("about", StoreMetadata(classes=("b", "s")))
    with StoreWriter(path, {"train": n}, 7, about, chunk_rows=chunk_rows, **options) as writer:
        for start in range(0, n, batch):
            writer.append("train", X[start : start + batch], y[start : start + batch])
    return path


def own_arrays(path: Path, **arrays: np.ndarray) -> Path:
    """A file of the user's own, made without bigsvm."""
    if path.suffix == ".zarr":
        group = zarr.create_group(path)
        for name, values in arrays.items():
            group.create_array(name, data=values)
    else:
        with h5py.File(path, "w") as file:
            for name, values in arrays.items():
                file[name] = values
    return path
