"""NumPy's npy (one array with a label column) and npz (arrays X and y), streamed.

Arrays are read, not memory-mapped: mapped pages would count as memory of this process.
"""

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy_format

from bigsvm.core.errors import UserError
from bigsvm.core.messages import one_line, quoted, quoted_list
from bigsvm.readers import MAX_FEATURES, Batch, ReadOptions, batch_rows
from bigsvm.readers.columns import check_features, column_position
from bigsvm.readers.decompress import DAMAGE, bounded, read_some
from bigsvm.readers.validate import checked_labels, finite_rows


@dataclass(frozen=True)
class _Header:
    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype


class NpyReader:
    """See `bigsvm.readers`."""

    feature_names: list[str] | None = None

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self.path = path
        with path.open("rb") as file:
            self.header = _read_header(path, file)
            self.start = file.tell()
        _check_table(path, self.header, "the array")
        self.n, columns = self.header.shape
        if path.stat().st_size - self.start < self.n * columns * self.header.dtype.itemsize:
            raise UserError(f"{path}: the file ends before its array does; fetch it again")
        self.label_column: int | None = None
        if options.with_labels:
            self.label_column = column_position(path, options.label_column, None, columns)
        self.d = columns - options.with_labels
        check_features(path, self.d, options)

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order."""
        n, columns = self.header.shape
        step = batch_rows(columns)
        with self.path.open("rb") as file:
            for first in range(0, n, step):
                table = self._rows(file, first, min(step, n - first))
                if self.label_column is None:
                    x, y = table, np.empty(0)
                else:
                    x = np.delete(table, self.label_column, axis=1)
                    y = checked_labels(self.path, table[:, self.label_column], first + 1)
                yield Batch(finite_rows(self.path, x, first + 1, None), y, first + 1)

    def _rows(self, file: IO[bytes], first: int, count: int) -> np.ndarray:
        (n, columns), dtype = self.header.shape, self.header.dtype
        if not self.header.fortran_order:
            file.seek(self.start + first * columns * dtype.itemsize)
            flat = _read_items(self.path, file, dtype, count * columns)
            return flat.reshape(count, columns)
        table = np.empty((count, columns), dtype)
        for column in range(columns):
            file.seek(self.start + (column * n + first) * dtype.itemsize)
            table[:, column] = _read_items(self.path, file, dtype, count)
        return table


class NpzReader:
    """See `bigsvm.readers`. Both members are read as streams in parallel."""

    feature_names: list[str] | None = None

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self.path = path
        try:
            with zipfile.ZipFile(path) as archive:
                arrays = [name[:-4] for name in archive.namelist() if name.endswith(".npy")]
                self.x_name = self._choose(arrays, "X")
                self.y_name: str | None = None
                if options.with_labels:
                    self.y_name = self._choose(arrays, str(options.label_column or "y"))
                for name in filter(None, (self.x_name, self.y_name)):
                    bounded(path, archive.getinfo(f"{name}.npy"))
                self._check(archive)
        except DAMAGE as failure:
            raise UserError(f"{path}: not a readable npz file ({one_line(failure)})") from failure
        check_features(path, self.d, ReadOptions(with_labels=False, features=options.features))

    def _choose(self, arrays: list[str], given: str) -> str:
        for name in (given, given.lower(), given.upper()):
            if name in arrays:
                return name
        there = quoted_list(arrays) or "no arrays"
        raise UserError(f"{self.path}: no array {given!r} in it; it has {there}")

    def _check(self, archive: zipfile.ZipFile) -> None:
        with archive.open(f"{self.x_name}.npy") as member:
            header = _read_header(self.path, member)
        _check_table(self.path, header, self.x_name)
        if header.fortran_order and min(header.shape) > 1:
            raise UserError(
                f"{self.path}: {self.x_name} is stored column by column and cannot be streamed "
                "out of a zip; save np.ascontiguousarray(X), or an npy file"
            )
        self.n, self.d = header.shape
        if self.y_name is None:
            return
        with archive.open(f"{self.y_name}.npy") as member:
            labels = _read_header(self.path, member)
        if labels.shape not in ((self.n,), (self.n, 1)):
            raise UserError(
                f"{self.path}: {self.y_name} has shape {labels.shape}, but {self.x_name} has "
                f"{self.n} rows"
            )
        if labels.dtype.itemsize > 4096:
            raise UserError(f"{self.path}: labels of type {labels.dtype} are too long")

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order."""
        step = batch_rows(self.d)
        with zipfile.ZipFile(self.path) as archive:
            x_stream = archive.open(f"{self.x_name}.npy")
            x_type = _read_header(self.path, x_stream).dtype
            if self.y_name is not None:
                y_stream = archive.open(f"{self.y_name}.npy")
                y_type = _read_header(self.path, y_stream).dtype
            for first in range(0, self.n, step):
                count = min(step, self.n - first)
                x = _read_items(self.path, x_stream, x_type, count * self.d)
                y = np.empty(0)
                if self.y_name is not None:
                    labels = _read_items(self.path, y_stream, y_type, count)
                    y = checked_labels(self.path, labels, first + 1)
                rows = finite_rows(self.path, x.reshape(count, self.d), first + 1, None)
                yield Batch(rows, y, first + 1)


def _read_header(path: Path, file: IO[bytes]) -> _Header:
    try:
        version = npy_format.read_magic(file)
        if version == (1, 0):
            header = _Header(*npy_format.read_array_header_1_0(file))
        else:
            header = _Header(*npy_format.read_array_header_2_0(file))
    except Exception as failure:
        # A header is a Python literal; NumPy raises errors of many types on a damaged one.
        raise UserError(f"{path}: not a readable NumPy array ({one_line(failure)})") from failure
    if header.dtype.hasobject:
        raise UserError(f"{path}: an array of Python objects; loading it could run code")
    return header


def _check_table(path: Path, header: _Header, name: str) -> None:
    if len(header.shape) != 2 or header.dtype.kind not in "biuf":
        raise UserError(
            f"{path}: {name} must be two-dimensional numbers, not "
            f"{quoted(f'{header.dtype} of shape {header.shape}')}"
        )
    n, columns = header.shape
    if n < 1:
        raise UserError(f"{path}: no rows in it")
    if columns > MAX_FEATURES:
        raise UserError(f"{path}: {columns} columns, the limit is {MAX_FEATURES}")


def _read_items(path: Path, file: IO[bytes], dtype: np.dtype, count: int) -> np.ndarray:
    data = read_some(path, file, count * dtype.itemsize)
    if len(data) < count * dtype.itemsize:
        raise UserError(f"{path}: the file ends before its array does; fetch it again")
    return np.frombuffer(data, dtype)
