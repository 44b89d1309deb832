"""Atomic writes: after a crash at any instant a file is either complete or absent."""

import csv
import errno
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from typing import IO, Any

from bigsvm.core.errors import UserError

REPLACED = "replaced"  # where `publish` moves the directory it replaces
_FSYNC_UNSUPPORTED = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` when the block succeeds.

    The data is flushed to disk before the rename, so a crash leaves the old file, or the new one,
    and possibly a temporary that `remove_stale_temporaries` removes, but never half a file.

    The temporary already exists as an empty file with an unpredictable name: in a directory that
    others can write to, a symlink planted under a predictable name would redirect the write.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(8)}.tmp")
    descriptor = None
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        descriptor = os.open(temporary, flags, 0o666)
        yield temporary
        _fsync(descriptor)
        if not os.path.samestat(os.fstat(descriptor), temporary.lstat()):
            raise UserError(f"{temporary}: another process has replaced this file; try again")
        temporary.replace(path)
        fsync(path.parent)
    except BaseException as failure:
        temporary.unlink(missing_ok=True)
        if isinstance(failure, OSError) and failure.filename in (None, str(temporary)):
            failure.filename = str(path)  # a failed write does not name the file
        raise
    finally:
        if descriptor is not None:  # kept open until now, so that its inode is not reused
            os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """Write a small text file atomically."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, "utf-8")


def write_csv(path: Path, rows: Iterable[Iterable[Any]]) -> None:
    """Write a CSV file atomically."""
    with atomic_write(path) as temporary, temporary.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def open_no_symlink(path: Path, mode: str) -> IO[Any]:
    """Open a file that may exist already; a symlink in its place is an error."""

    def nofollow_opener(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NOFOLLOW, 0o666)

    try:
        return open(path, mode, opener=nofollow_opener)
    except OSError:
        if path.is_symlink():
            raise UserError(
                f"{path}: is a symlink, and symlinks are not written to; remove it"
            ) from None
        raise


def publish(staged: Path, path: Path) -> None:
    """Flush a finished directory (or file) to disk and rename it to `path`.

    A directory cannot be replaced in one step, so an old one is first moved to REPLACED beside the
    staged one. If a crash follows, `staging_dir` moves it back.
    """
    for written in (staged, *staged.rglob("*")):
        fsync(written)
    aside = staged.with_name(REPLACED)
    try:
        if path.is_dir():
            path.rename(aside)
        staged.replace(path)
    except BaseException:
        if aside.exists() and not path.exists():
            aside.rename(path)
        raise
    fsync(path.parent)


def fsync(path: Path) -> None:
    """Make the content of a file, or the renames in a directory, survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        _fsync(descriptor)
    finally:
        os.close(descriptor)


def _fsync(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    except OSError as failure:
        # Some network and FUSE file systems do not support fsync, especially of directories; data
        # is as safe there as they make it. Any other failure means that data was lost.
        if failure.errno not in _FSYNC_UNSUPPORTED:
            raise


def remove_stale_temporaries(directory: Path, name: str | None = None) -> None:
    """Remove temporaries that killed processes left in `directory`, but not those being written.

    Of all files, or only of the file `name`.
    """
    for leftover in directory.glob(f".{'*' if name is None else escape(name)}.*.tmp"):
        process = _writer_of(leftover)
        # In a container, the process that was killed may have had our own process id.
        if process is not None and (process == os.getpid() or not _is_running(process)):
            leftover.unlink(missing_ok=True)


# Earlier versions had no random part.
_TEMPORARY = re.compile(r"\..+\.(\d+)(\.[0-9a-f]{16})?\.tmp", re.DOTALL)


def _writer_of(leftover: Path) -> int | None:
    """The id of the process that was writing a temporary; None if the file is not a temporary."""
    named = _TEMPORARY.fullmatch(leftover.name)
    if named is None or leftover.is_symlink() or not leftover.is_file():
        return None
    return int(named[1])


def _is_running(process: int) -> bool:
    import psutil  # imported late: commands that only write should not wait for it

    return psutil.pid_exists(process)
