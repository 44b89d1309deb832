"""Columns that pass from an input to its predictions as they are: ids, names, dates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from bigsvm.core.errors import UserError
from bigsvm.core.messages import quoted, quoted_list
from bigsvm.readers import ReadOptions
from bigsvm.readers.arrow_batches import NamedTable, open_named_table

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
    """Open a file once more, for the columns that are to be kept."""
    table = open_named_table(source, options)
    if table is None:
        raise UserError(
            f"--keep {names[0]}: the columns of {source} have no names; CSV with a header line and "
            "Parquet have"
        )
    for name in names:
        if name not in table.names:
            raise UserError(
                f"--keep {name}: {source} has no such column; it has {quoted_list(table.names)}"
            )
    return KeptColumns(table, names)


class KeptColumns:
    """Reads the columns of the next rows, as many as are asked for each time."""

    def __init__(self, table: NamedTable, names: Sequence[str]) -> None:
        self._path = table.path
        self._batches: Iterator[pa.RecordBatch] = table.batches(names)
        self._left: pa.RecordBatch | None = None

    def next(self, rows: int) -> pa.Table:
        """The columns of the next rows."""
        import pyarrow as pa

        found = []
        while rows:
            part = self._left if self._left is not None else next(self._batches, None)
            if part is None:
                raise self._other_rows()
            found.append(part.slice(0, rows))
            self._left = part.slice(rows) if part.num_rows > rows else None
            rows -= found[-1].num_rows
        return pa.Table.from_batches(found)

    def check_end(self) -> None:
        """Raise a UserError if rows are left: the file has changed between the two readings."""
        if self._left is not None or next(self._batches, None) is not None:
            raise self._other_rows()

    def _other_rows(self) -> UserError:
        return UserError(
            f"{self._path}: its rows are not the same when read once more; did it change, or has "
            "it lines of blanks?"
        )
