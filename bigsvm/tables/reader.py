"""A table of several files as rows of numbers and labels; see `bigsvm.readers`."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from bigsvm.config.prepare_options import PrepareOptions
from bigsvm.core.errors import UserError
from bigsvm.core.messages import quoted
from bigsvm.readers import Batch, Reader, ReadOptions, batch_rows, open_reader
from bigsvm.readers.arrow_batches import NamedTable, is_arrow, open_named_table
from bigsvm.readers.chosen_columns import labels_of, present_numbers
from bigsvm.readers.columns import column_position
from bigsvm.readers.detect import detect_format
from bigsvm.readers.labels import LabelDecoder
from bigsvm.tables.encoding import Encoding, check_columns
from bigsvm.tables.fit import AUTO, fit_encoding

COLUMN_OPTIONS = ("ignore", "columns", "missing", "categorical", "unseen")


class EncodedTable:
    """The rows of tables, their columns encoded.

    Attributes
    ----------
    encoding : Encoding
    label, weight : str or None
        Columns that are no features.
    dropped : int
        Rows left out so far, because a value was missing.
    leave_gaps : bool
        Yield nan for a missing number, which `Encoding.fill_gaps` fills later.
    """

    def __init__(
        self,
        tables: Sequence[NamedTable],
        encoding: Encoding,
        label: str | None,
        weight: str | None = None,
        keep_rows: bool = False,
    ) -> None:
        self._tables, self._keep_rows = tables, keep_rows
        self.encoding, self.label, self.weight = encoding, label, weight
        self.feature_names: list[str] | None = encoding.features
        self.d = len(encoding.features)
        self.dropped, self.leave_gaps = 0, False
        counts = [table.n for table in tables]
        self.n = None if None in counts else sum(n for n in counts if n is not None)
        if not self.d:
            raise UserError(f"{tables[0].path}: no features are left")

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order."""
        self.dropped = 0
        others = [name for name in (self.label, self.weight) if name is not None]
        wanted = list(dict.fromkeys([*self.encoding.names, *others]))
        labels = LabelDecoder(self._tables[0].path) if self._tables[0].is_text else None
        found = 0
        for table in self._tables:
            first = 1
            for whole in table.batches(wanted):
                for start in range(0, whole.num_rows, batch_rows(self.d)):
                    part = whole.slice(start, batch_rows(self.d))
                    x, complete = self.encoding.encode(part, table.path, first, self.leave_gaps)
                    if self._keep_rows and not complete.all():
                        raise UserError(
                            f"{table.path}, row {first + int(complete.argmin())}: a value is "
                            "missing; the training data was prepared without such rows "
                            "(--missing drop)"
                        )
                    y, weight = np.empty(0), None
                    if self.label is not None:
                        y = labels_of(part.column(self.label), table.path, first, labels)[complete]
                    if self.weight is not None:
                        values = part.column(self.weight)
                        weight = present_numbers(values, table.path, self.weight, first)[complete]
                    self.dropped += int(np.count_nonzero(~complete))
                    found += part.num_rows
                    if complete.any():
                        yield Batch(x[complete], y, first, weight)
                    first += part.num_rows
        if not found:
            raise UserError(f"{self._tables[0].path}: no rows in it")


class ChainedReader:
    """The rows of several files of one format, one file after the other."""

    def __init__(self, readers: Sequence[Reader], names: Sequence[str]) -> None:
        self._readers = readers
        self.d, self.feature_names = readers[0].d, readers[0].feature_names
        for reader, name in zip(readers, names, strict=True):
            if reader.d != self.d:
                raise UserError(
                    f"{name}: has {reader.d} features where {names[0]} has {self.d}; all parts "
                    "need the same"
                )

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order."""
        for reader in self._readers:
            yield from reader.batches()


def needs_table(files: Sequence[Path], options: PrepareOptions) -> bool:
    """Whether the files are read as a table, or by the reader of their format."""
    asked = any(getattr(options, name) is not None for name in COLUMN_OPTIONS)
    return asked or len(files) > 1 or is_arrow(files[0])


def open_table(
    files: Sequence[Path], options: PrepareOptions, encoding: Encoding | None = None
) -> Reader:
    """Open files as one table; with an encoding, as that has it.

    Files without column names (npy, LIBSVM) can only be concatenated.
    """
    reading = options.to_read()
    first = open_named_table(files[0], reading)
    if first is None:
        for option in COLUMN_OPTIONS:
            if getattr(options, option) is not None:
                raise UserError(
                    f"{files[0]}: its columns have no names, which --"
                    f"{'features' if option == 'columns' else option} needs; CSV with a header "
                    "line, Parquet and Arrow have"
                )
        return _chained(files, reading)
    tables = [first]
    for path in files[1:]:
        table = open_named_table(path, reading)
        if table is None or sorted(table.columns) != sorted(first.columns):
            raise UserError(
                f"{path}: has other columns than {files[0]}; all parts of a table need the same"
            )
        tables.append(table)
    names = first.names
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"{files[0]}: column {quoted(name)} is there twice; rename one of them")
    label = _named(first, options.label_column, "labels")
    weight = None
    if options.weight_column is not None:
        weight = _named(first, options.weight_column, "weights")
    if encoding is None:
        encoding = fit_encoding(tables, _features(first, label, weight, options), options)
    else:
        check_columns(names, encoding.names, "like", files[0])
    return EncodedTable(tables, encoding, label, weight)


def _named(table: NamedTable, asked: str | int | None, purpose: str) -> str:
    """The column asked for by name or position."""
    columns = table.names if asked in table.names else table.columns
    return columns[column_position(table.path, asked, columns, len(columns), purpose)]


def _features(
    table: NamedTable, label: str, weight: str | None, options: PrepareOptions
) -> list[str]:
    """The columns that become features."""
    path, names = table.path, table.names
    ignored, chosen = options.ignore or [], options.columns
    categorical = [name for name in options.categorical or [] if name != AUTO]
    check_columns(names, ignored, "ignore", path)
    check_columns(names, chosen or [], "features", path)
    check_columns(names, categorical, "categorical", path)
    if label in ignored or label in (chosen or []) or label in categorical:
        raise UserError(
            f"{path}: column {quoted(label)} is that of the labels, and no feature; --label-column "
            "names another"
        )
    left = [name for name in chosen or table.columns if name not in (label, weight, *ignored)]
    if missing := [name for name in categorical if name not in left]:
        raise UserError(f"--categorical {missing[0]}: this column is left out")
    if not left:
        raise UserError(f"{path}: no features are left besides the label")
    return left


def _chained(files: Sequence[Path], reading: ReadOptions) -> Reader:
    readers = [open_reader(path, reading) for path in files]
    widest = max(reader.d for reader in readers)
    if any(reader.d < widest for reader in readers):
        readers = [  # a LIBSVM file may leave out the last features
            open_reader(path, replace(reading, features=widest))
            if detect_format(path, reading) == "libsvm"
            else reader
            for path, reader in zip(files, readers, strict=True)
        ]
    return ChainedReader(readers, [str(path) for path in files])
