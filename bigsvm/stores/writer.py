"""Writing a data set atomically: it appears under its path complete, or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from bigsvm.core.errors import UserError
from bigsvm.core.labels import Classes, class_codes, classes_to_json
from bigsvm.core.scaling import Scaling
from bigsvm.core.weights import weights_digest
from bigsvm.files.atomic import publish
from bigsvm.files.staging import PARTIAL, restore_replaced, staging_dir
from bigsvm.stores.fingerprint import new_fingerprint
from bigsvm.stores.group import CHECKSUM_KEY, attributes_checksum
from bigsvm.stores.labels import FORMAT_KEY, MULTICLASS_FORMAT
from bigsvm.stores.rows import CHUNK_BYTES, rows_that_fit
from bigsvm.stores.store import WEIGHT, WEIGHT_DIGEST

HDF5_SUFFIXES = (".h5", ".hdf5")
SUFFIXES = (".zarr", *HDF5_SUFFIXES)
COMPRESSIONS = ("zstd", "none")


@dataclass(frozen=True)
class StoreMetadata:
    """What a store records about its data."""

    classes: Classes
    scaling: Scaling | None = None
    feature_names: list[str] | None = None
    source: str = ""
    files: Mapping[str, str] = field(default_factory=dict)  # part -> SHA-256 of the raw file
    prepare: Mapping[str, Any] = field(default_factory=dict)  # the options it was made with
    encoding: Mapping[str, Any] | None = None  # of the columns of a table
    label_column: str | None = None  # its name in the table

    def attributes(self) -> dict[str, Any]:
        """The attributes of a group of the store."""
        # Stores of two classes keep the original format, which has no version attribute.
        version = {FORMAT_KEY: MULTICLASS_FORMAT} if len(self.classes) > 2 else {}
        return version | {
            **classes_to_json(self.classes),
            "scaling": self.scaling.to_json() if self.scaling else None,
            "feature_names": self.feature_names,
            "source": self.source,
            "files": dict(self.files),
            "prepare": dict(self.prepare),
            **({} if self.encoding is None else {"encoding": dict(self.encoding)}),
            **({} if self.label_column is None else {"label_column": self.label_column}),
        }


class StoreWriter:
    """Writes a Zarr (`*.zarr`) or HDF5 (`*.h5`, `*.hdf5`) store; use it in a `with` block.

    The store is written to a staging directory beside `path` and is moved to `path` when the block
    ends without error and all rows have been written; otherwise nothing is left behind.

    Parameters
    ----------
    path : Path
    rows : mapping
        Number of rows of each part, e.g. ``{"train": 60_000, "test": 12_825}``.
    d : int
        Number of features.
    about : StoreMetadata
    chunk_rows : int, optional
        Rows per chunk; default: as many as fit in 8 MiB.
    compression : {"zstd", "none"}, optional
        Default: zstd for Zarr, none for HDF5 (which has no zstd).
    overwrite : bool
        Replace an existing store, which is an error otherwise.
    weighted : bool
        Also write an array `weight`.
    """

    def __init__(
        self,
        path: Path,
        rows: Mapping[str, int],
        d: int,
        about: StoreMetadata,
        *,
        chunk_rows: int | None = None,
        compression: str | None = None,
        overwrite: bool = False,
        weighted: bool = False,
    ) -> None:
        self.path = path
        self._weighted = weighted
        self._rows = dict(rows)
        self._d = d
        self._about = about
        self._chunk_rows = chunk_rows or rows_that_fit(CHUNK_BYTES, d)
        self._overwrite = overwrite
        self._compressed = check_target(path, compression, overwrite)
        self._cleanup = ExitStack()
        self._parts: dict[str, _GroupWriter] = {}

    def __enter__(self) -> StoreWriter:
        self._staging = self._cleanup.enter_context(staging_dir(self.path, PARTIAL))
        self._staged = self._staging / self.path.name
        try:
            self._create()
        except BaseException:
            self._cleanup.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._cleanup:
            if kind is None:
                for name, part in self._parts.items():
                    part.finish(name)
            if self._file is not None:
                # After an error such as a full disk, closing may fail too; report the first error.
                with suppress(*([] if kind is None else [Exception])):
                    self._file.close()
            if kind is None:
                if self.path.exists() and not self._overwrite:
                    raise UserError(f"{self.path}: another process has created it in the meantime")
                publish(self._staged, self.path)

    def append(
        self, part: str, X: np.ndarray, y: np.ndarray, weight: np.ndarray | None = None
    ) -> None:
        """Write the next rows (m, d) float32, class codes (m,) and weights (m,) of `part`."""
        self._parts[part].append(X, y, weight)

    def _create(self) -> None:
        self._file: Any = None
        about = attributes = self._about.attributes() | {"parts": list(self._rows)}
        if self.path.suffix in HDF5_SUFFIXES:
            import h5py

            root = self._file = h5py.File(self._staged, "w")
            # HDF5 attributes have neither null nor lists of mixed types: use JSON text.
            attributes = {
                key: value if isinstance(value, str) else json.dumps(value)
                for key, value in attributes.items()
            }
        else:
            import zarr

            root = zarr.create_group(self._staged, zarr_format=3)
        for name, n in self._rows.items():
            group = root.create_group(name)
            group.attrs.update(attributes)
            chunk_rows = min(self._chunk_rows, n)
            x = self._create_array(group, "X", (n, self._d), (chunk_rows, self._d), np.float32)
            kind = class_codes(self._about.classes).dtype.type
            y = self._create_array(group, "y", (n,), (min(n, CHUNK_BYTES),), kind)
            weight = None
            if self._weighted:
                chunks = (min(n, CHUNK_BYTES // 8),)
                weight = self._create_array(group, WEIGHT, (n,), chunks, np.float64)
            self._parts[name] = _GroupWriter(group, x, y, weight, chunk_rows, about)

    def _create_array(
        self, group: Any, name: str, shape: tuple[int, ...], chunks: tuple[int, ...], dtype: type
    ) -> Any:
        if self._file is not None:
            return group.create_dataset(name, shape=shape, chunks=chunks, dtype=dtype)
        from zarr.codecs import ZstdCodec

        # Level -1 removes repetitions as well as level 1 does, but leaves measured numbers alone:
        # compressing those saves 7 % of the size and makes every pass a fifth slower.
        compressors = [ZstdCodec(level=-1, checksum=True)] if self._compressed else None
        no_label = 0 if len(self._about.classes) == 2 else -1
        return group.create_array(
            name,
            shape=shape,
            chunks=chunks,
            dtype=dtype,
            compressors=compressors,
            # Zarr reads a missing chunk as the fill value: use one that no data set can contain.
            fill_value=np.nan if issubclass(dtype, np.floating) else no_label,
            config={"write_empty_chunks": True},
        )


class _GroupWriter:
    """Writes one group: collects rows into whole chunks and hashes what it writes."""

    def __init__(
        self, group: Any, x: Any, y: Any, weight: Any, chunk_rows: int, about: Mapping[str, Any]
    ) -> None:
        self._group, self._x, self._y, self._about = group, x, y, dict(about)
        self._weight = weight
        self._weights = np.empty(0 if weight is None else x.shape[0])
        self._n, d = x.shape
        self._buffer = np.empty((chunk_rows, d), dtype=np.float32)
        self._filled = 0
        self._written = 0
        self._codes = np.empty(self._n, dtype=y.dtype)
        self._digest = new_fingerprint(self._n, d)

    def append(self, X: np.ndarray, y: np.ndarray, weight: np.ndarray | None) -> None:
        begin = self._written + self._filled
        if begin + len(X) > self._n or len(X) != len(y):
            raise ValueError(f"{len(X)} rows, {len(y)} labels after {begin} rows of {self._n}")
        self._codes[begin : begin + len(y)] = y
        if (weight is None) != (self._weight is None):
            raise ValueError("weights are needed for all rows, or for none")
        if weight is not None:
            self._weights[begin : begin + len(y)] = weight
        taken = 0
        while taken < len(X):
            count = min(len(X) - taken, len(self._buffer) - self._filled)
            self._buffer[self._filled : self._filled + count] = X[taken : taken + count]
            self._filled += count
            taken += count
            if self._filled == len(self._buffer):
                self._flush()

    def _flush(self) -> None:
        rows = self._buffer[: self._filled]
        self._digest.update(rows)
        self._x[self._written : self._written + self._filled] = rows
        self._written += self._filled
        self._filled = 0

    def finish(self, name: str) -> None:
        self._flush()
        if self._written != self._n:
            raise ValueError(f"part {name} got {self._written} of its {self._n} rows")
        self._y[:] = self._codes
        self._digest.update(self._codes)
        if self._weight is not None:
            self._weight[:] = self._weights
            self._group.attrs[WEIGHT_DIGEST] = weights_digest(self._weights)
        about = self._about | {"fingerprint": self._digest.hexdigest()}
        self._group.attrs.update(
            {"fingerprint": about["fingerprint"], CHECKSUM_KEY: attributes_checksum(about)}
        )


def check_target(path: Path, compression: str | None, overwrite: bool) -> bool:
    """Reject a path that cannot be written; return whether the store will be compressed."""
    if path.suffix not in SUFFIXES:
        raise UserError(f"{path}: the name of a store must end in .zarr, .h5 or .hdf5")
    if compression not in (None, *COMPRESSIONS):
        raise UserError(f"compression {compression!r} is not known; choose zstd or none")
    hdf5 = path.suffix in HDF5_SUFFIXES
    if hdf5 and compression == "zstd":
        raise UserError(f"{path}: HDF5 has no zstd; leave out the compression or write a .zarr")
    if not path.parent.is_dir():
        raise UserError(f"{path}: there is no folder {path.parent}; create it first")
    restore_replaced(path)
    if path.exists():
        if not overwrite:
            raise UserError(f"{path}: exists already; --overwrite replaces it")
        if path.is_dir() == hdf5 or not (hdf5 or (path / "zarr.json").exists()):
            raise UserError(f"{path}: is not a store, so it is not overwritten; move it away")
    return not hdf5 and compression != "none"
