"""Parquet: columns of numbers and a label column, read by row batches."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bigsvm.core.errors import UserError
from bigsvm.core.messages import one_line, quoted
from bigsvm.readers import MAX_FEATURES, Batch, ReadOptions, batch_rows
from bigsvm.readers.columns import check_features, column_position
from bigsvm.readers.validate import checked_labels, finite_rows

_BUFFER_BYTES = 2**16
# What reading may take. Of each column of a row group a page and the dictionary are in memory, as
# large as writers make them unless asked otherwise, and about twice while they are decoded.
_MOST_BYTES = 2**30
_PAGE_BYTES = 2 * 2**20


class ParquetReader:
    """See `bigsvm.readers`."""

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self.path = path
        with _readable(path) as file:
            schema = file.schema_arrow
            self.n = file.metadata.num_rows
            _check_row_groups(path, file.metadata)
        index = _index_of_pandas(schema)
        self._places = [k for k, name in enumerate(schema.names) if name not in index]
        self.names = names = [schema.names[k] for k in self._places]
        if self.n == 0 or not names:
            raise UserError(f"{path}: no rows in it")
        if len(names) > MAX_FEATURES:
            raise UserError(f"{path}: {len(names)} columns, the limit is {MAX_FEATURES}")
        self.label_column: int | None = None
        if options.with_labels:
            self.label_column = column_position(path, options.label_column, names, len(names))
        self.columns = [k for k in range(len(names)) if k != self.label_column]
        for k in self.columns:
            kind = schema.field(self._places[k]).type
            if not _is_number(kind):
                raise UserError(f"{path}: column {quoted(names[k])} holds {kind}, not numbers")
        self.feature_names: list[str] | None = [names[k] for k in self.columns]
        self.d = len(self.columns)
        check_features(path, self.d, options)

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order."""
        first = 1
        with _readable(self.path) as file:
            # Threads and prefetching would hold several row groups at a time.
            parts = file.iter_batches(batch_size=batch_rows(self.d + 1), use_threads=False)
            while (part := _next(self.path, parts)) is not None:
                x = np.empty((part.num_rows, self.d))
                for position, column in enumerate(self.columns):
                    x[:, position] = self._numbers(self._column(part, column), first, position)
                y = np.empty(0)
                if self.label_column is not None:
                    y = self._labels(self._column(part, self.label_column), first)
                yield Batch(finite_rows(self.path, x, first, self.feature_names), y, first)
                first += part.num_rows

    def _column(self, part: pa.RecordBatch, column: int) -> pa.Array:
        return part.column(self._places[column])

    def _numbers(self, values: pa.Array, first: int, position: int) -> np.ndarray:
        if values.null_count:
            row = first + _first_null(values)
            assert self.feature_names is not None
            raise UserError(
                f"{self.path}, row {row}, column {quoted(self.feature_names[position])}: "
                "the value is missing"
            )
        if pa.types.is_decimal(values.type):
            values = values.cast(pa.float64())
        return values.to_numpy(zero_copy_only=False)

    def _labels(self, values: pa.Array, first: int) -> np.ndarray:
        if values.null_count:
            raise UserError(f"{self.path}, row {first + _first_null(values)}: the label is missing")
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
            return checked_labels(self.path, np.array(values.to_pylist(), np.str_), first)
        if not _is_number(values.type):
            raise UserError(f"{self.path}: labels of type {values.type} cannot be used")
        if pa.types.is_decimal(values.type) and values.type.scale <= 0:
            try:
                values = values.cast(pa.int64())
            except pa.ArrowInvalid as failure:
                raise UserError(
                    f"{self.path}: labels of type {values.type} do not fit into 64 bits"
                ) from failure
        return checked_labels(self.path, self._numbers(values, first, 0), first)


def _index_of_pandas(schema: pa.Schema) -> set[str]:
    """The columns that hold the index of a data frame: they number the rows, as a rule."""
    try:
        columns = schema.pandas_metadata["index_columns"]
        return {name for name in columns if isinstance(name, str)}
    except (ValueError, KeyError, TypeError):  # not written by pandas, or not as pandas does it
        return set()


def _readable(path: Path) -> pq.ParquetFile:
    try:
        # Every column has a buffer of this size: of a thousand columns, 1 MiB would be 1 GiB.
        return pq.ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER_BYTES)
    except (pa.ArrowException, OSError) as failure:
        raise _damaged(path, failure) from failure


def _check_row_groups(path: Path, metadata: pq.FileMetaData) -> None:
    """Refuse row groups so wide that a page of every column is more than memory should hold."""
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if group.num_columns * (2 * _PAGE_BYTES + _BUFFER_BYTES) <= _MOST_BYTES:
            return  # and so it is for the others: they have the same columns
        sizes = (group.column(k).total_uncompressed_size for k in range(group.num_columns))
        needed = sum(2 * min(size, _PAGE_BYTES) + _BUFFER_BYTES for size in sizes)
        if needed > _MOST_BYTES:
            rows = max(1, group.num_rows * _MOST_BYTES // needed // 2)
            raise UserError(
                f"{path}: a row group of {group.num_rows:,} rows and {group.num_columns:,} columns "
                f"takes {needed / 2**20:,.0f} MiB to read, the limit is {_MOST_BYTES // 2**20:,}; "
                f"write it with smaller ones (row_group_size={rows})"
            )


def _next(path: Path, parts: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    try:
        return next(parts, None)
    except (pa.ArrowException, OSError) as failure:
        raise _damaged(path, failure) from failure


def _damaged(path: Path, failure: BaseException) -> UserError:
    return UserError(f"{path}: not a readable Parquet file ({one_line(failure)})")


def _is_number(kind: pa.DataType) -> bool:
    return (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
    )


def _first_null(values: pa.Array) -> int:
    return int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
