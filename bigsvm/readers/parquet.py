"""Parquet: columns of numbers and a label column, read in batches of rows.

One page of every column that is being read is in memory. If a row group is too wide for that, it is
first decoded, one strip of columns at a time, into a temporary file.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bigsvm.core.errors import UserError
from bigsvm.core.messages import one_line, option, quoted
from bigsvm.readers import MAX_FEATURES, Batch, ReadOptions, batch_rows
from bigsvm.readers.arrow_batches import pandas_index
from bigsvm.readers.chosen_columns import first_null, is_number, labels_of
from bigsvm.readers.columns import check_features, column_position
from bigsvm.readers.validate import finite_rows

_BUFFER_BYTES = 2**16
# Memory for the columns that are read at the same time: all of them, or else those of a strip. Each
# holds a page and a dictionary of the size that writers use by default, about twice that while they
# are decoded.
_MAX_BYTES = 256 * 2**20
_STRIP_BYTES = 64 * 2**20
_PAGE_BYTES = 2 * 2**20


class ParquetReader:
    """See `bigsvm.readers`."""

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self.path = path
        with _open(path) as file:
            schema = file.schema_arrow
            self.n = file.metadata.num_rows
            self._strips = _strips(file.metadata, schema)
        index = pandas_index(schema)
        self._positions = [k for k, name in enumerate(schema.names) if name not in index]
        self.names = names = [schema.names[k] for k in self._positions]
        if self.n == 0 or not names:
            raise UserError(f"{path}: no rows in it")
        if len(names) > MAX_FEATURES:
            raise UserError(f"{path}: {len(names)} columns, the limit is {MAX_FEATURES}")
        self.label_column: int | None = None
        if options.with_labels:
            self.label_column = column_position(path, options.label_column, names, len(names))
        self.label = None if self.label_column is None else names[self.label_column]
        self.columns = [k for k in range(len(names)) if k != self.label_column]
        for k in self.columns:
            kind = schema.field(self._positions[k]).type
            if not is_number(kind):
                advice = f"{option('ignore', names[k])} leaves it out"
                if not pa.types.is_temporal(kind):
                    advice += f", {option('categorical', names[k])} makes indicators of its values"
                raise UserError(
                    f"{path}: column {quoted(names[k])} holds {kind}, not numbers; {advice}"
                )
        self.feature_names: list[str] | None = [names[k] for k in self.columns]
        self.d = len(self.columns)
        check_features(path, self.d, options)

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order."""
        first = 1
        with _open(self.path) as file:
            parts = self._parts(file) if len(self._strips) == 1 else self._parts_by_strips(file)
            for columns in parts:
                x = np.empty((len(columns[0]), self.d))
                for position, column in enumerate(self.columns):
                    values = columns[self._positions[column]]
                    x[:, position] = self._numbers(values, first, position)
                y = np.empty(0)
                if self.label_column is not None:
                    labels = columns[self._positions[self.label_column]]
                    y = labels_of(labels, self.path, first)
                yield Batch(finite_rows(self.path, x, first, self.feature_names), y, first)
                first += len(x)

    def _parts(self, file: pq.ParquetFile) -> Iterator[list[pa.Array]]:
        """Yield all columns of a batch of rows at a time."""
        # Threads and prefetching would hold several row groups in memory.
        parts = file.iter_batches(batch_size=batch_rows(self.d + 1), use_threads=False)
        while (part := _next(self.path, parts)) is not None:
            yield part.columns

    def _parts_by_strips(self, file: pq.ParquetFile) -> Iterator[list[pa.Array]]:
        """Like `_parts`, with the pages of only one strip of columns in memory."""
        rows = batch_rows(self.d + 1)
        for group in range(file.metadata.num_row_groups):
            with tempfile.TemporaryFile() as copy:
                offsets: list[list[int]] = []  # of the batches of each strip in the file
                for strip in self._strips:
                    offsets.append([])
                    parts = file.reader.iter_batches(
                        rows, row_groups=[group], column_indices=strip, use_threads=False
                    )
                    while (part := _next(self.path, parts)) is not None:
                        offsets[-1].append(copy.tell())
                        with pa.ipc.new_stream(copy, part.schema) as stream:
                            stream.write_batch(part)
                for batch_offsets in zip(*offsets, strict=True):
                    columns = []
                    for offset in batch_offsets:
                        copy.seek(offset)
                        columns += pa.ipc.open_stream(copy).read_next_batch().columns
                    yield columns

    def _numbers(self, values: pa.Array, first: int, position: int) -> np.ndarray:
        if values.null_count:
            row = first + first_null(values)
            assert self.feature_names is not None
            raise UserError(
                f"{self.path}, row {row}, column {quoted(self.feature_names[position])}: "
                "the value is missing"
            )
        if pa.types.is_decimal(values.type):
            values = values.cast(pa.float64())
        return values.to_numpy(zero_copy_only=False)


def _open(path: Path) -> pq.ParquetFile:
    try:
        # Every column has such a buffer: with 1 MiB, a thousand columns would take 1 GiB.
        return pq.ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER_BYTES)
    except (pa.ArrowException, OSError) as failure:
        raise _damaged(path, failure) from failure


def _strips(metadata: pq.FileMetaData, schema: pa.Schema) -> list[list[int]]:
    """Divide the columns into strips whose pages fit in memory together.

    Columns are given by their leaves; only nested columns, which cannot be used, have several.
    """
    leaves = metadata.num_columns
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    largest = max(groups, key=lambda group: group.total_byte_size, default=None)
    if largest is None or 2 * largest.total_byte_size + leaves * _BUFFER_BYTES <= _MAX_BYTES:
        return [list(range(leaves))]
    strips: list[list[int]] = [[]]
    taken, leaf = 0, 0
    for kind in schema.types:
        column = range(leaf, leaf := leaf + _n_leaves(kind))
        sizes = (largest.column(k).total_uncompressed_size for k in column)
        needed = sum(2 * min(size, _PAGE_BYTES) + _BUFFER_BYTES for size in sizes)
        if strips[-1] and taken + needed > _STRIP_BYTES:
            strips.append([])
            taken = 0
        strips[-1] += column
        taken += needed
    return strips


def _n_leaves(kind: pa.DataType) -> int:
    return sum(_n_leaves(kind.field(k).type) for k in range(kind.num_fields)) or 1


def _next(path: Path, parts: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    try:
        return next(parts, None)
    except (pa.ArrowException, OSError) as failure:
        raise _damaged(path, failure) from failure


def _damaged(path: Path, failure: BaseException) -> UserError:
    return UserError(f"{path}: not a readable Parquet file ({one_line(failure)})")
