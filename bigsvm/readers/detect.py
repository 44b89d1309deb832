"""Detecting the format of a file by its magic bytes, its extension and its first lines."""

import re
import zipfile
from pathlib import Path

from bigsvm.core.errors import UserError
from bigsvm.core.messages import one_line
from bigsvm.readers import Format, ReadOptions
from bigsvm.readers.decompress import (
    BYTE_ORDER_MARK,
    DAMAGE,
    ZIP_MAGIC,
    data_member,
    magic_bytes,
    open_stream,
    read_some,
)

SAMPLE_BYTES = 65_536
COMPRESSED = {".gz", ".bz2", ".xz", ".zip"}
BY_SUFFIX: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".libsvm": "libsvm",
    ".svmlight": "libsvm",
    ".svm": "libsvm",
}
# Up to the first feature. A CSV row with a date and a time of day looks much like it.
_LIBSVM_ROW = re.compile(
    r"""\s*
    (([-+]?[\d.eE]+(,[-+]?[\d.eE]+)*|[^,;|:\s]+)\s+)?  # a label, or several
    \d+:[-+.\d][^:,;|\s]*(\s|$)""",
    re.VERBOSE,
)
_TWO_COUNTS = re.compile(r"\s*\d+\s+\d+\s*")


def detect_format(path: Path, options: ReadOptions) -> Format:
    """The format of `path`: the one given by the options, or else detected."""
    first = magic_bytes(path)
    if options.format != "auto":
        return options.format
    if first.startswith(b"PAR1"):
        return "parquet"
    if first.startswith(b"\x93NUMPY"):
        return "npy"
    if first.startswith(b"\x89HDF\r\n\x1a\n"):
        raise UserError(f"{path}: an HDF5 file is a store already; train on it directly")
    suffixes = path.suffixes
    if first.startswith(ZIP_MAGIC):
        try:
            with zipfile.ZipFile(path) as archive:
                if any(name.endswith(".npy") for name in archive.namelist()):
                    return "npz"
                suffixes = Path(data_member(path, archive).filename).suffixes
        except DAMAGE as failure:
            raise UserError(
                f"{path}: the zip is damaged ({one_line(failure)}); fetch it again"
            ) from failure
    meaningful = [suffix for suffix in map(str.lower, suffixes) if suffix not in COMPRESSED]
    if meaningful and meaningful[-1] in BY_SUFFIX:
        return BY_SUFFIX[meaningful[-1]]
    return _by_content(path, first_lines(path))


def first_lines(path: Path) -> list[str]:
    """The lines at the beginning of `path`; the last one may be incomplete."""
    with open_stream(path) as stream:
        sample = read_some(path, stream, SAMPLE_BYTES)
    if b"\0" in sample:
        raise UserError(f"{path}: not a text file, nor of a known binary format")
    return sample.removeprefix(BYTE_ORDER_MARK).decode(errors="replace").split("\n")


def _by_content(path: Path, lines: list[str]) -> Format:
    rows = [line for line in (line.partition("#")[0] for line in lines) if line.strip()]
    if not rows:
        raise UserError(f"{path}: no rows in it (only empty lines)")
    if _TWO_COUNTS.fullmatch(rows[0]) and len(rows) > 1 and len(rows[1].split()) > 2:
        return "miniboone"
    # A row of zeros is just a label, so the first rows alone may not reveal the format.
    if any(_LIBSVM_ROW.match(row) for row in rows[:100]):
        return "libsvm"
    if any(delimiter in rows[0] for delimiter in ",;|\t "):
        return "csv"
    raise UserError(f"{path}: cannot detect its format; give it (libsvm, csv, parquet, ...)")
