"""Tables with named columns, read as Arrow batches: CSV/TSV with a header, Parquet, Arrow."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet as pq

from bigsvm.core.errors import UserError
from bigsvm.core.messages import one_line
from bigsvm.readers import ReadOptions, batch_rows
from bigsvm.readers.csv import CsvReader
from bigsvm.readers.decompress import DAMAGE, open_stream
from bigsvm.readers.detect import detect_format

_TEXT_BYTES = 4 * 2**20  # of a CSV file per block
_BUFFER_BYTES = 2**16


class NamedTable:
    """A file whose columns have names; parses only the columns that are requested.

    Attributes
    ----------
    names : list of str
    columns : list of str
        The same without the index of a data frame, which is no feature unless it is asked for.
    n : int or None
        The number of rows; None if it is not known before reading.
    schema : Schema or None
        None for text, whose values have no declared types and are read as strings.
    """

    def __init__(
        self,
        path: Path,
        names: list[str],
        n: int | None = None,
        schema: pa.Schema | None = None,
        delimiter: str | None = None,
    ) -> None:
        self.path, self.names, self.n, self.schema = path, names, n, schema
        index = set() if schema is None else pandas_index(schema)
        self.columns = [name for name in names if name not in index]
        self._delimiter = delimiter  # of text

    @property
    def is_text(self) -> bool:
        """Whether its values are read as strings."""
        return self.schema is None

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order; fields of a text file are strings without their quotes."""
        parts = self._text(columns) if self.is_text else self._binary(columns)
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

    def _binary(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if is_arrow(self.path):
            with pa.memory_map(str(self.path)) as source:
                file = pa.ipc.open_file(source)
                for k in range(file.num_record_batches):
                    yield file.get_batch(k).select(list(columns))
            return
        with pq.ParquetFile(self.path, pre_buffer=False, buffer_size=_BUFFER_BYTES) as file:
            yield from file.iter_batches(
                batch_rows(len(columns) + 1), columns=list(columns), use_threads=False
            )

    def _text(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with open_stream(self.path) as stream:
            yield from pa.csv.open_csv(
                stream,
                # Threads would read ahead, and hold more of the file in memory.
                pa.csv.ReadOptions(block_size=_TEXT_BYTES, use_threads=False),
                pa.csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True),
                pa.csv.ConvertOptions(
                    include_columns=list(columns),
                    column_types=dict.fromkeys(columns, pa.string()),
                    strings_can_be_null=False,
                ),
            )


def open_named_table(path: Path, options: ReadOptions) -> NamedTable | None:
    """Open a file whose columns have names; None for any other file."""
    if path.is_file() and is_arrow(path):
        try:
            with pa.memory_map(str(path)) as source:
                schema = pa.ipc.open_file(source).schema
                return NamedTable(path, schema.names, None, schema)
        except (pa.ArrowException, OSError) as failure:
            raise UserError(f"{path}: not a readable Arrow file ({one_line(failure)})") from failure
    kind = detect_format(path, options)
    if kind == "parquet":
        try:
            with pq.ParquetFile(path) as file:
                schema = file.schema_arrow
                return NamedTable(path, schema.names, file.metadata.num_rows, schema)
        except (pa.ArrowException, OSError) as failure:
            raise UserError(
                f"{path}: not a readable Parquet file ({one_line(failure)})"
            ) from failure
    if kind not in ("csv", "tsv"):
        return None
    whole = replace(options, with_labels=False, label_column=None, features=None)
    text = CsvReader(path, whole, tab=kind == "tsv")
    if text.names is None or text.delimiter == " ":  # Arrow cannot split at runs of blanks
        return None
    return NamedTable(path, text.names, delimiter=text.delimiter)


def pandas_index(schema: pa.Schema) -> set[str]:
    """The columns that hold the index of a data frame, which usually just numbers the rows."""
    try:
        columns = schema.pandas_metadata["index_columns"]
        return {name for name in columns if isinstance(name, str)}
    except (ValueError, KeyError, TypeError):  # not written by pandas, or in an unknown way
        return set()


def is_arrow(path: Path) -> bool:
    """Whether the magic bytes are those of an Arrow (Feather) file."""
    with path.open("rb") as file:
        return file.read(6) == b"ARROW1"
