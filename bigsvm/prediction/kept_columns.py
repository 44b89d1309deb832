"""Columns that pass from an input to its predictions as they are: ids, names, dates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import pyarrow as pa

from bigsvm.core.errors import UserError
from bigsvm.core.messages import columns_there, one_line, quoted
from bigsvm.readers import ReadOptions
from bigsvm.readers.arrow_batches import NamedTable, open_named_table
from bigsvm.tables.files import expand

WITH_COLUMNS = (".csv", ".parquet")


def check_kept(names: Sequence[str], out: Path, taken: Sequence[str]) -> None:
    """Reject columns that the output has no place for; `taken` are the names of its own."""
    if names and str(out) != "-" and out.suffix.lower() not in WITH_COLUMNS:
        raise UserError(f"--keep {names[0]}: {out} has no columns; write *.csv or *.parquet")
    for k, name in enumerate(names):
        if name in taken:
            raise UserError(
                f"--keep {name}: the predictions have a column {quoted(name)} of their own; rename "
                "that of the input"
            )
        if name in names[:k]:
            raise UserError(f"--keep {name}: is given twice")


def open_kept(names: Sequence[str], source: Path, options: ReadOptions) -> KeptColumns:
    """Open files once more, for the columns that are to be kept."""
    tables = []
    for path in expand(str(source)):
        table = open_named_table(path, options)
        if table is None:
            raise UserError(
                f"--keep {names[0]}: the columns of {path} have no names; CSV with a header line "
                "and Parquet have"
            )
        for name in names:
            if name not in table.names:
                there = columns_there(name, table.names)
                raise UserError(f"--keep {name}: {path} has no such column; {there}")
        tables.append(table)
    return KeptColumns(tables, names, source)


class KeptColumns:
    """Reads the columns of the next rows of one file, as many as are asked for each time."""

    def __init__(self, tables: Sequence[NamedTable], names: Sequence[str], source: Path) -> None:
        self._path = source
        self._batches: Iterator[pa.RecordBatch] = chain.from_iterable(
            table.batches(names) for table in tables
        )
        self._left: pa.RecordBatch | None = None
        self._schema: pa.Schema | None = None  # of the first file; the others are cast to it

    def next(self, rows: int) -> pa.Table:
        """The columns of the next rows."""
        import pyarrow as pa

        found = []
        while rows:
            part = self._left if self._left is not None else next(self._batches, None)
            if part is None:
                raise self._other_rows()
            found.append(self._as_first(part.slice(0, rows)))
            self._left = part.slice(rows) if part.num_rows > rows else None
            rows -= found[-1].num_rows
        return pa.Table.from_batches(found)

    def _as_first(self, part: pa.RecordBatch) -> pa.RecordBatch:
        self._schema = self._schema or part.schema
        if part.schema == self._schema:
            return part
        try:
            return part.cast(self._schema)
        except (ValueError, NotImplementedError) as problem:  # pyarrow's errors derive from these
            raise UserError(
                f"--keep: the columns of {self._path} have other types in other files: "
                f"{one_line(problem)}"
            ) from problem

    def check_end(self) -> None:
        """Raise a UserError if rows are left: the file has changed between the two readings."""
        if self._left is not None or next(self._batches, None) is not None:
            raise self._other_rows()

    def _other_rows(self) -> UserError:
        return UserError(
            f"{self._path}: its rows are not the same when read once more; did it change, or has "
            "it lines of blanks?"
        )
