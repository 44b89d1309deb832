"""Reading files of rows and labels in batches of bounded size: one module for each format."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, get_args

import numpy as np

Format = Literal["auto", "libsvm", "csv", "tsv", "parquet", "npy", "npz", "miniboone"]
FORMATS: tuple[Format, ...] = get_args(Format)

BATCH_BYTES = 16 * 2**20

# Rows are dense, so that a row of a million features already takes 8 MB. A larger index is far more
# often a sign of a damaged file than of a data set that this program suits.
MAX_FEATURES = 1_000_000


@dataclass(frozen=True)
class ReadOptions:
    """How to read a file.

    Parameters
    ----------
    format : one of FORMATS
        `auto` decides by magic bytes, then by the file extension, then by the first lines.
    label_column : str, int or None
        Name, or position counted from 0 (negative: from the end). None is the last column. For npz
        the name of the array of labels (None: `y`). An error for LIBSVM and MiniBooNE, which define
        where labels are.
    weight_column : str, int or None
        The column of row weights, given in the same ways; not for npz.
    header : "auto", True or False
        CSV/TSV only. `auto`: there is one if no feature field of the first line is a number.
    delimiter : str or None
        CSV only: one character; " " means any run of blanks. None: guessed from the first line.
    features : int or None
        The number of features the file must have. For LIBSVM, whose rows omit zeros, None means
        the largest index, which takes one more pass over the file.
    with_labels : bool
        False: every column is a feature. (A LIBSVM row may still start with a label, which is
        ignored.)
    """

    format: Format = "auto"
    label_column: str | int | None = None
    weight_column: str | int | None = None
    header: bool | Literal["auto"] = "auto"
    delimiter: str | None = None
    features: int | None = None
    with_labels: bool = True


@dataclass
class Batch:
    """Some consecutive rows.

    `x` is (m, d) float64, C-contiguous, all finite. `y` is (m,): float64 if the labels of the file
    are numbers, otherwise text (a numpy `str` array), never a mixture within one file; of length 0
    if read without labels. `first_row` is the 1-based line (text) or row (other formats) of x[0].
    `weight` is (m,) float64 if a column of weights was requested. `lines` holds the line number of
    each row of a text file, since there may be empty lines between rows.
    """

    x: np.ndarray
    y: np.ndarray
    first_row: int
    weight: np.ndarray | None = None
    lines: np.ndarray | None = None

    def location(self, row: int) -> str:
        """Where the user finds x[row] in the file, for messages."""
        if self.lines is None:
            return f"row {self.first_row + row}"
        return f"line {self.lines[row]}"


class Reader(Protocol):
    """A file opened for reading; every call of `batches()` starts from the beginning."""

    d: int
    feature_names: list[str] | None

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order, in batches of at most BATCH_BYTES (or one row)."""
        ...


def batch_rows(d: int) -> int:
    """How many rows of `d` features make one batch."""
    return max(1, BATCH_BYTES // (8 * d))


def open_reader(path: Path, options: ReadOptions | None = None) -> Reader:
    """Open `path` with the reader of its format.

    Raises UserError if the file is missing, damaged, or not of the format.
    """
    # Imported here so that `--help` does not wait for numba or pyarrow.
    from bigsvm.readers.detect import detect_format

    options = options or ReadOptions()
    path = Path(path)
    if options.weight_column is not None:
        from bigsvm.readers.columns import WeightedReader

        return WeightedReader(path, options)
    match detect_format(path, options):
        case "libsvm":
            from bigsvm.readers.libsvm import LibsvmReader

            return LibsvmReader(path, options)
        case "miniboone":
            from bigsvm.readers.miniboone import MinibooneReader

            return MinibooneReader(path, options)
        case "parquet":
            from bigsvm.readers.parquet import ParquetReader

            return ParquetReader(path, options)
        case "npy":
            from bigsvm.readers.numpy_files import NpyReader

            return NpyReader(path, options)
        case "npz":
            from bigsvm.readers.numpy_files import NpzReader

            return NpzReader(path, options)
        case kind:
            from bigsvm.readers.csv import CsvReader

            return CsvReader(path, options, tab=kind == "tsv")
