"""The outputs of `predict`: CSV, Parquet, Zarr or npy, streamed to disk."""

import csv
import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from bigsvm.core.errors import UserError
from bigsvm.core.labels import Classes
from bigsvm.files.atomic import atomic_write, publish, remove_stale_temporaries
from bigsvm.files.staging import PARTIAL, restore_replaced, staging_dir

if TYPE_CHECKING:
    import pyarrow as pa

STANDARD_OUTPUT = "-"
ROW_GROUP = 2**20  # decision values: small row groups and chunks are slow to read


def columns_of(classes: Classes, kept: Sequence[str] = (), probability: bool = False) -> list[str]:
    """The columns of a table: one decision value, or one per class for more than two.

    With `probability` also one for each class.
    """
    names = [f"decision_{label}" for label in classes] if len(classes) > 2 else ["decision"]
    names += [f"probability_{label}" for label in classes] if probability else []
    return ["row", *kept, *names, "label"]


def rows_in_group(classes: Classes) -> int:
    """The number of rows in a row group or chunk."""
    return ROW_GROUP if len(classes) == 2 else max(1, ROW_GROUP // len(classes))


class Predicted(NamedTuple):
    """The predictions of consecutive rows.

    Attributes
    ----------
    decision : (rows,) or (rows, classes) array
    label : (rows,) array
    probability : (rows, classes) array or None
        Only of a calibrated model, where it was asked for.
    """

    decision: np.ndarray
    label: np.ndarray
    probability: np.ndarray | None = None

    @property
    def values(self) -> np.ndarray:
        """The numbers of a table, a row for each of its columns: decisions, then probabilities."""
        decision = np.atleast_2d(self.decision.T)
        return decision if self.probability is None else np.vstack([decision, self.probability.T])


class Writer(Protocol):
    """Writes predictions in the order of the rows."""

    def append(self, start: int, rows: Predicted, kept: "pa.Table | None" = None) -> None:
        """Write the predictions of rows `start`, `start` + 1, ...

        `kept` are columns of the input, which follow the row number if the output is a table.
        """

    def close(self) -> None:
        """Complete the file."""


class CsvPredictions:
    """The columns of `columns_of`; decision values are written with all their digits."""

    def __init__(self, file: IO[bytes], classes: Classes, names: Sequence[str]) -> None:
        self._text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        self._csv = csv.writer(self._text, lineterminator="\n")
        self._csv.writerow(names)

    def append(self, start: int, rows: Predicted, kept: "pa.Table | None" = None) -> None:
        """See `Writer`."""
        label = rows.label.tolist()
        numbers = range(start, start + len(label))
        others = [] if kept is None else [column.to_pylist() for column in kept.columns]
        self._csv.writerows(zip(numbers, *others, *rows.values.tolist(), label, strict=True))

    def close(self) -> None:
        """See `Writer`."""
        self._text.flush()
        self._text.detach()


class ParquetPredictions:
    """The columns of `columns_of`."""

    def __init__(self, file: IO[bytes], classes: Classes, names: Sequence[str]) -> None:
        self._file = file
        self._names = list(names)
        self._group_rows = rows_in_group(classes)
        self._parquet: Any = None
        self._buffered: list[Any] = []

    def append(self, start: int, rows: Predicted, kept: "pa.Table | None" = None) -> None:
        """See `Writer`."""
        import pyarrow as pa

        label = rows.label
        numbers = np.arange(start, start + len(label))
        exact = label.dtype.kind in "iuf"  # Arrow would convert other integers to signed ones
        labels = pa.array(label if exact else [str(value) for value in label.tolist()])
        values = [np.ascontiguousarray(column) for column in rows.values]
        others = [] if kept is None else kept.columns
        self._buffered.append(pa.table([numbers, *others, *values, labels], names=self._names))
        if sum(map(len, self._buffered)) >= self._group_rows:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        if self._buffered:
            table = pa.concat_tables(self._buffered)
            self._buffered.clear()
            if self._parquet is None:
                self._parquet = parquet.ParquetWriter(self._file, table.schema)
            self._parquet.write_table(table, row_group_size=self._group_rows)

    def close(self) -> None:
        """See `Writer`."""
        self._flush()
        if self._parquet is not None:
            self._parquet.close()


class NpyPredictions:
    """Only the decision values, as one float64 array."""

    def __init__(self, file: IO[bytes], classes: Classes, names: Sequence[str]) -> None:
        self._file = file
        self._rows = 0
        self._width = (len(classes),) if len(classes) > 2 else ()
        self._write_header()

    def append(self, start: int, rows: Predicted, kept: "pa.Table | None" = None) -> None:
        """See `Writer`."""
        self._file.write(np.ascontiguousarray(rows.decision, "<f8").tobytes())
        self._rows += len(rows.decision)

    def close(self) -> None:
        """See `Writer`."""
        self._file.seek(0)
        self._write_header()

    def _write_header(self) -> None:
        # numpy pads the header so that it can be rewritten with a larger length.
        about = {"descr": "<f8", "fortran_order": False, "shape": (self._rows, *self._width)}
        np.lib.format.write_array_header_1_0(self._file, about)


class ZarrPredictions:
    """A group with the arrays decision, label and perhaps probability, by `rows_in_group` rows."""

    def __init__(self, folder: Path, classes: Classes) -> None:
        import zarr

        self._chunk_rows = rows_in_group(classes)
        self._group = zarr.create_group(folder, zarr_format=3)
        self._buffered: list[Predicted] = []

    def append(self, start: int, rows: Predicted, kept: "pa.Table | None" = None) -> None:
        """See `Writer`."""
        self._buffered.append(rows)
        while sum(len(part.label) for part in self._buffered) >= self._chunk_rows:
            self._write_chunk()

    def _write_chunk(self) -> None:
        """Write one chunk of the buffered rows, or at the end the rest of them."""
        rows = self._chunk_rows
        arrays = {
            name: np.concatenate([getattr(part, name) for part in self._buffered])
            for name in Predicted._fields
            if getattr(self._buffered[0], name) is not None
        }
        self._buffered = [Predicted(**{name: values[rows:] for name, values in arrays.items()})]
        for name, values in arrays.items():
            if name not in self._group:
                kind = str if values.dtype.kind in "UO" else values.dtype
                width = values.shape[1:]
                self._group.create_array(name, shape=(0, *width), chunks=(rows, *width), dtype=kind)
            array: Any = self._group[name]
            array.append(values[:rows].astype(str) if values.dtype.kind == "O" else values[:rows])

    def close(self) -> None:
        """See `Writer`."""
        if any(len(part.label) for part in self._buffered):
            self._write_chunk()


KINDS: dict[str, type] = {
    ".csv": CsvPredictions,
    ".parquet": ParquetPredictions,
    ".npy": NpyPredictions,
    ".zarr": ZarrPredictions,
}


def check_output(path: Path, overwrite: bool) -> None:
    """Raise a UserError for an output that cannot, or must not, be written."""
    if str(path) == STANDARD_OUTPUT:
        return
    if path.suffix.lower() not in KINDS:
        raise UserError(
            f"{path}: the name of the output must end in .csv, .parquet, .zarr or .npy, which "
            "gives its format, or be - for standard output"
        )
    if not path.parent.is_dir():
        raise UserError(f"{path}: there is no folder {path.parent}; create it first")
    zarr = path.suffix.lower() == ".zarr"
    restore_replaced(path)
    if path.is_dir() and not (zarr and (path / "zarr.json").exists()):
        raise UserError(f"{path}: is a folder; choose another name")
    if path.is_file() and zarr:
        raise UserError(f"{path}: is a file, and a Zarr group is a folder; choose another name")
    if path.exists() and not overwrite:
        raise UserError(f"{path}: exists already; --overwrite replaces it")


@contextmanager
def open_predictions(path: Path, classes: Classes, names: Sequence[str]) -> Iterator[Writer]:
    """Yield a writer; the output appears only if the block succeeds.

    Standard output receives CSV as it is computed. `names` are the columns of a table, as
    `columns_of` gives them.
    """
    writer: Writer
    if str(path) == STANDARD_OUTPUT:
        sys.stdout.flush()
        writer = CsvPredictions(sys.stdout.buffer, classes, names)
        yield writer
        writer.close()
        return
    kind = KINDS[path.suffix.lower()]
    if kind is ZarrPredictions:
        with staging_dir(path, PARTIAL) as folder:
            writer = ZarrPredictions(folder / path.name, classes)
            yield writer
            writer.close()
            publish(folder / path.name, path)
        return
    # What kill -9 left of an earlier table may be large.
    remove_stale_temporaries(path.parent, path.name)
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        writer = kind(file, classes, names)
        yield writer
        writer.close()
