"""Predictions on their way to a file: CSV, Parquet or npy, written as they come."""

import csv
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from bigsvm.durable import written_whole
from bigsvm.errors import UserError

COLUMNS = ("row", "decision", "label")
ROW_GROUP = 2**20  # rows: Parquet in small pieces is slow to read


class Writer(Protocol):
    """Takes the rows in order, from row 0 on."""

    def append(self, start: int, decision: np.ndarray, label: np.ndarray) -> None:
        """Write rows `start`, `start` + 1, ... with decision values and class labels."""

    def close(self) -> None:
        """Complete the file."""


class CsvPredictions:
    """The columns row, decision, label; a decision value reads back to the same bits."""

    def __init__(self, file: IO[bytes]) -> None:
        self._text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        self._csv = csv.writer(self._text, lineterminator="\n")
        self._csv.writerow(COLUMNS)

    def append(self, start: int, decision: np.ndarray, label: np.ndarray) -> None:
        """See `Writer`."""
        rows = range(start, start + len(decision))
        self._csv.writerows(zip(rows, decision.tolist(), label.tolist(), strict=True))

    def close(self) -> None:
        """See `Writer`."""
        self._text.flush()
        self._text.detach()


class ParquetPredictions:
    """The columns row, decision, label."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._parquet: Any = None
        self._waiting: list[Any] = []

    def append(self, start: int, decision: np.ndarray, label: np.ndarray) -> None:
        """See `Writer`."""
        import pyarrow as pa

        rows = np.arange(start, start + len(decision))
        labels = pa.array(label.tolist())
        self._waiting.append(pa.table([rows, decision, labels], names=list(COLUMNS)))
        if sum(map(len, self._waiting)) >= ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        if self._waiting:
            table = pa.concat_tables(self._waiting)
            self._waiting.clear()
            if self._parquet is None:
                self._parquet = parquet.ParquetWriter(self._file, table.schema)
            self._parquet.write_table(table, row_group_size=ROW_GROUP)

    def close(self) -> None:
        """See `Writer`."""
        self._flush()
        if self._parquet is not None:
            self._parquet.close()


class NpyPredictions:
    """The decision values only, one float64 array."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._rows = 0
        self._write_header()

    def append(self, start: int, decision: np.ndarray, label: np.ndarray) -> None:
        """See `Writer`."""
        self._file.write(np.ascontiguousarray(decision, "<f8").tobytes())
        self._rows += len(decision)

    def close(self) -> None:
        """See `Writer`."""
        self._file.seek(0)
        self._write_header()

    def _write_header(self) -> None:
        # numpy leaves room in the header for the length to grow: it can be written again.
        about = {"descr": "<f8", "fortran_order": False, "shape": (self._rows,)}
        np.lib.format.write_array_header_1_0(self._file, about)


KINDS: dict[str, type] = {
    ".csv": CsvPredictions,
    ".parquet": ParquetPredictions,
    ".npy": NpyPredictions,
}


def check_output(path: Path, overwrite: bool) -> None:
    """Refuse an output that cannot, or should not, be written."""
    if path.suffix.lower() not in KINDS:
        raise UserError(f"{path}: name the output *.csv, *.parquet or *.npy, which says its format")
    if not path.parent.is_dir():
        raise UserError(f"{path}: there is no folder {path.parent}; create it first")
    if path.is_dir():
        raise UserError(f"{path}: is a folder; choose another name")
    if path.exists() and not overwrite:
        raise UserError(f"{path}: exists already; --overwrite replaces it")


@contextmanager
def open_predictions(path: Path) -> Iterator[Writer]:
    """Yield a writer; the file appears whole when the block ends well, or not at all."""
    with written_whole(path) as temporary, temporary.open("wb") as file:
        writer: Writer = KINDS[path.suffix.lower()](file)
        yield writer
        writer.close()
