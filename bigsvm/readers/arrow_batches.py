"""Chosen columns of a table as Arrow batches: CSV and TSV with a header line, and Parquet."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from bigsvm.core.errors import UserError
from bigsvm.core.messages import one_line
from bigsvm.readers import ReadOptions, batch_rows
from bigsvm.readers.csv import CsvReader
from bigsvm.readers.decompress import DAMAGE, open_stream
from bigsvm.readers.detect import detect_format

_TEXT_BYTES = 4 * 2**20  # of a CSV file at a time
_BUFFER_BYTES = 2**16


class NamedTable:
    """A file of columns that have names; of those, only the ones asked for are parsed.

    Attributes
    ----------
    names : list of str
    n : int or None
        The number of rows; None where the file does not say it beforehand.
    """

    def __init__(self, path: Path, names: list[str], n: int | None, delimiter: str | None) -> None:
        self.path, self.names, self.n = path, names, n
        self._delimiter = delimiter  # of text; None for Parquet

    @property
    def is_text(self) -> bool:
        """Whether its values are read as strings: a text file does not say their types."""
        return self._delimiter is not None

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order; the fields of a text file are strings, quotes removed."""
        parts = self._parquet(columns) if self._delimiter is None else self._text(columns)
        while True:
            try:
                part = next(parts, None)
            except UserError:
                raise
            except (pa.ArrowException, *DAMAGE) as failure:
                raise UserError(f"{self.path}: cannot be read ({one_line(failure)})") from failure
            if part is None:
                return
            if part.num_rows:
                yield part

    def _parquet(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(self.path, pre_buffer=False, buffer_size=_BUFFER_BYTES) as file:
            yield from file.iter_batches(
                batch_rows(len(columns) + 1), columns=list(columns), use_threads=False
            )

    def _text(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with open_stream(self.path) as stream:
            yield from pa.csv.open_csv(
                stream,
                # Threads would read ahead, and so hold more of the file than they were asked for.
                pa.csv.ReadOptions(block_size=_TEXT_BYTES, use_threads=False),
                pa.csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True),
                pa.csv.ConvertOptions(
                    include_columns=list(columns),
                    column_types=dict.fromkeys(columns, pa.string()),
                    strings_can_be_null=False,
                ),
            )


def open_named_table(path: Path, options: ReadOptions) -> NamedTable | None:
    """Open a file whose columns have names; None where it is no such file."""
    kind = detect_format(path, options)
    if kind == "parquet":
        try:
            with pq.ParquetFile(path) as file:
                return NamedTable(path, file.schema_arrow.names, file.metadata.num_rows, None)
        except (pa.ArrowException, OSError) as failure:
            raise UserError(
                f"{path}: not a readable Parquet file ({one_line(failure)})"
            ) from failure
    if kind not in ("csv", "tsv"):
        return None
    whole = replace(options, with_labels=False, label_column=None, features=None)
    text = CsvReader(path, whole, tab=kind == "tsv")
    if text.names is None or text.delimiter == " ":  # Arrow takes no runs of blanks
        return None
    return NamedTable(path, text.names, None, text.delimiter)
