"""Which files a source stands for: a file, several, a pattern, or a folder of parts."""

import glob
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bigsvm.core.errors import UserError
from bigsvm.files.staging import staging_dir

STANDARD_INPUT = "-"
_SPOOLED = "standard input"  # the name of the file it is kept in
# Of a folder, these are parts of a table; what begins with . or _ is a marker of its writer.
PART_SUFFIXES = (".csv", ".tsv", ".parquet", ".arrow", ".feather")
COMPRESSED = (".gz", ".bz2", ".xz")
_ZARR = ("zarr.json", ".zgroup", ".zarray")
SourceName = str | Path | tuple[str, ...]


def is_table_source(source: SourceName) -> bool:
    """Whether it stands for several files: more than one name, a pattern, or a folder."""
    if isinstance(source, tuple):
        return True
    path = Path(source)
    return path.is_dir() or (not path.exists() and glob.has_magic(str(source)))


def is_parts(source: str | Path) -> bool:
    """Whether it is a pattern, or a folder with parts of a table, rather than a store or a file."""
    path = Path(source)
    if not path.is_dir():
        return is_table_source(source)
    is_group = any((path / name).exists() for name in _ZARR)
    return not is_group and any(_is_part(part, path) for part in path.rglob("*"))


def shown_source(source: SourceName) -> str:
    """The source as it is recorded and named in messages."""
    if isinstance(source, tuple):
        return ", ".join(source)
    return _SPOOLED if Path(source).name == _SPOOLED else str(source)


def expand(source: SourceName) -> list[Path]:
    """The files a source stands for; those of a pattern or folder in the order of their names."""
    files: list[Path] = []
    for name in source if isinstance(source, tuple) else (str(source),):
        path = Path(name)
        if path.is_dir():
            found = sorted(part for part in path.rglob("*") if _is_part(part, path))
            if not found:
                raise UserError(
                    f"{path}: no parts of a table in this folder ({', '.join(PART_SUFFIXES)})"
                )
        elif path.exists() or not glob.has_magic(name):
            found = [path]
        else:
            found = sorted(path for path in map(Path, glob.glob(name)) if path.is_file())  # noqa: PTH207
            if not found:
                raise UserError(f"{name}: no file has such a name")
        for part in found:
            if not part.is_file():
                raise UserError(f"{part}: there is no such file")
            if part in files:
                raise UserError(f"{part}: is given twice")
            files.append(part)
    return files


def _is_part(path: Path, folder: Path) -> bool:
    if any(name.startswith((".", "_")) for name in path.relative_to(folder).parts):
        return False
    suffixes = [suffix for suffix in path.suffixes if suffix.lower() not in COMPRESSED]
    return path.is_file() and bool(suffixes) and suffixes[-1].lower() in PART_SUFFIXES


@contextmanager
def spooled(names: Sequence[str], near: Path) -> Iterator[SourceName]:
    """The source that the names on a command line stand for; standard input becomes a file.

    It is read twice, so it is kept in a file beside the store until the store is complete.
    """
    if STANDARD_INPUT not in names:
        yield names[0] if len(names) == 1 else tuple(names)
        return
    if len(names) > 1:
        raise UserError("-: standard input is a source by itself; leave out the others")
    folder = near.resolve().parent
    if not folder.is_dir():
        raise UserError(f"{near}: there is no folder {folder}; create it first")
    with staging_dir(near, "stdin") as temporary:
        path = temporary / _SPOOLED
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file, 2**20)
        if not path.stat().st_size:
            raise UserError("-: standard input is empty")
        try:
            yield path
        except UserError as failure:
            raise UserError(str(failure).replace(str(path), _SPOOLED)) from failure
