"""Staging directories: hidden directories beside a path for work in progress."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bigsvm.core.errors import DISK_FULL, BeingWritten, UserError
from bigsvm.files.atomic import REPLACED

PARTIAL = "partial"  # the purpose of a directory whose content is published in the end


@contextmanager
def staging_dir(beside: Path, purpose: str) -> Iterator[Path]:
    """Yield an empty directory `.NAME.PURPOSE` beside `beside`; it is removed at the end.

    The directory is locked, and the system releases the lock when the process dies. This tells the
    leftovers of a killed process, which are removed, from the work of a running one, an error.
    """
    folder = beside.with_name(f".{beside.name}.{purpose}")
    descriptor = _create_locked(folder, beside)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def restore_replaced(path: Path) -> None:
    """Restore what was being replaced when a process was killed or the power failed."""
    if not path.exists() and (path.with_name(f".{path.name}.{PARTIAL}") / REPLACED).exists():
        with staging_dir(path, PARTIAL):
            pass  # entering removes the leftovers, and restores what they hold


def _create_locked(folder: Path, beside: Path) -> int:
    while True:
        try:
            folder.mkdir()
            fresh = True
        except FileExistsError:
            fresh = False
        except OSError as problem:
            if problem.errno in DISK_FULL:
                raise
            raise UserError(f"{beside}: cannot be written here ({problem.strerror})") from problem
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue  # its owner has just ended
        except OSError as problem:  # a file, a symlink, or a directory of another user
            raise _in_the_way(folder, beside, problem) from problem
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            if fresh:
                continue  # another process took our new directory for a leftover: start over
            raise BeingWritten(
                f"{beside}: another process is writing it; wait until it ends"
            ) from None
        except OSError:
            pass  # a file system without locks cannot detect a second writer
        if fresh and _is_still(folder, descriptor):
            return descriptor
        if _is_still(folder, descriptor):
            if (folder / REPLACED).exists() and not beside.exists():
                (folder / REPLACED).rename(beside)  # the power failed between two renames
            try:
                shutil.rmtree(folder)
            except FileNotFoundError:
                pass  # another process was faster
            except OSError as problem:
                os.close(descriptor)
                raise _in_the_way(folder, beside, problem) from problem
        os.close(descriptor)


def _in_the_way(folder: Path, beside: Path, problem: OSError) -> UserError:
    return UserError(
        f"{beside}: cannot be written while {folder} is in the way ({problem.strerror}); remove it"
    )


def _is_still(folder: Path, descriptor: int) -> bool:
    """Whether the name still refers to the directory that is locked."""
    try:
        return os.path.samestat(folder.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
