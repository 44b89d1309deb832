"""Files that either exist whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from glob import escape
from pathlib import Path

REPLACED = "replaced"


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; publish it under `path` when the block succeeds.

    The data reaches the disk before the name does, so a crash at any instant leaves either the
    old file, or the new one, or a temporary that `sweep` removes: never half a file.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        fsync(temporary)
        temporary.replace(path)
        fsync(path.parent)
    except BaseException as failure:
        temporary.unlink(missing_ok=True)
        if isinstance(failure, OSError) and failure.filename is None:
            failure.filename = str(path)  # a failed write does not say where
        raise


def publish_folder(folder: Path, path: Path) -> None:
    """Give a finished folder (or file) its name: the data reaches the disk before the name does.

    A folder cannot be replaced in one step, so that an old one goes aside first, to REPLACED beside
    the new one; `hidden_folder` brings it back where that was all.
    """
    for written in (folder, *folder.rglob("*")):
        fsync(written)
    aside = folder.with_name(REPLACED)
    try:
        if path.is_dir():
            path.rename(aside)
        folder.replace(path)
    except BaseException:
        if aside.exists() and not path.exists():
            aside.rename(path)
        raise
    fsync(path.parent)


def fsync(path: Path) -> None:
    """Make a file's content, or the renames inside a folder, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sweep(directory: Path, name: str | None = None) -> None:
    """Remove temporaries that a killed process left in `directory`, not those being written.

    Those of all files, or of the one that was to be called `name`.
    """
    for leftover in directory.glob(f".{'*' if name is None else escape(name)}.*.tmp"):
        process = leftover.name.split(".")[-2]
        if not process.isdigit() or not leftover.is_file():
            continue  # somebody else's
        # In a container, the one that was killed may have had our own number.
        if int(process) == os.getpid() or not Path(f"/proc/{process}").exists():
            leftover.unlink(missing_ok=True)
