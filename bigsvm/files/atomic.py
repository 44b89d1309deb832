"""Files that either exist whole or not at all."""

import errno
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from typing import IO, Any

from bigsvm.core.errors import UserError

REPLACED = "replaced"
_NOT_SUPPORTED = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; publish it under `path` when the block succeeds.

    The data reaches the disk before the name does, so a crash at any instant leaves either the
    old file, or the new one, or a temporary that `remove_stale_temporaries` removes: never half a
    file.

    The temporary is an empty file by then, under a name that nobody can foresee: in a directory
    that others may write to, a symlink planted there would have us overwrite another file.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(8)}.tmp")
    descriptor = None
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        descriptor = os.open(temporary, flags, 0o666)
        yield temporary
        _fsync(descriptor)
        if not os.path.samestat(os.fstat(descriptor), temporary.lstat()):
            raise UserError(f"{temporary}: another process has put a file in its place; try again")
        temporary.replace(path)
        fsync(path.parent)
    except BaseException as failure:
        temporary.unlink(missing_ok=True)
        if isinstance(failure, OSError) and failure.filename in (None, str(temporary)):
            failure.filename = str(path)  # a failed write does not say where
        raise
    finally:
        if descriptor is not None:  # held until now, so that no other file gets its number
            os.close(descriptor)


def open_no_symlink(path: Path, mode: str) -> IO[Any]:
    """Open a file of ours that may exist already; a symlink in its place is an error."""

    def refusing_symlinks(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NOFOLLOW, 0o666)

    try:
        return open(path, mode, opener=refusing_symlinks)
    except OSError:
        if path.is_symlink():
            raise UserError(
                f"{path}: is a symlink to another file, which is not written to; remove it"
            ) from None
        raise


def publish(folder: Path, path: Path) -> None:
    """Give a finished folder (or file) its name: the data reaches the disk before the name does.

    A folder cannot be replaced in one step, so that an old one goes aside first, to REPLACED beside
    the new one; `staging_dir` brings it back where that was all.
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
        _fsync(descriptor)
    finally:
        os.close(descriptor)


def _fsync(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    except OSError as failure:
        # Some network and FUSE file systems have no such thing, of folders above all. What is
        # written there is as safe as they make it; any other failure means that data was lost.
        if failure.errno not in _NOT_SUPPORTED:
            raise


def remove_stale_temporaries(directory: Path, name: str | None = None) -> None:
    """Remove temporaries that a killed process left in `directory`, not those being written.

    Those of all files, or of the one that was to be called `name`.
    """
    for leftover in directory.glob(f".{'*' if name is None else escape(name)}.*.tmp"):
        process = _process_of(leftover)
        # In a container, the one that was killed may have had our own number.
        if process is not None and (process == os.getpid() or not _is_running(process)):
            leftover.unlink(missing_ok=True)


# The random part was not always there.
_TEMPORARY = re.compile(r"\..+\.(\d+)(\.[0-9a-f]{16})?\.tmp", re.DOTALL)


def _process_of(leftover: Path) -> int | None:
    """The process that was writing a temporary; None where it is somebody else's."""
    named = _TEMPORARY.fullmatch(leftover.name)
    if named is None or leftover.is_symlink() or not leftover.is_file():
        return None
    return int(named[1])


def _is_running(process: int) -> bool:
    import psutil  # not every command that writes a file has to wait for it

    return psutil.pid_exists(process)
