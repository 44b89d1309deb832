"""A hidden folder beside a path, for what is not finished yet."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bigsvm.core.errors import DISK_FULL, BeingWritten, UserError
from bigsvm.files.atomic import REPLACED

PARTIAL = "partial"  # the purpose of the folder that something whole comes from


@contextmanager
def staging_dir(beside: Path, purpose: str) -> Iterator[Path]:
    """Yield an empty folder `.NAME.PURPOSE` beside `beside`; it is removed at the end.

    A lock on the folder, which the system drops when its process dies, tells the leftovers of a
    killed process (removed here) from the work of a living one (an error).
    """
    folder = beside.with_name(f".{beside.name}.{purpose}")
    descriptor = _create_locked(folder, beside)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def restore_replaced(path: Path) -> None:
    """Give its name back to what was being replaced when the process, or the power, went."""
    if not path.exists() and (path.with_name(f".{path.name}.{PARTIAL}") / REPLACED).exists():
        with staging_dir(path, PARTIAL):
            pass  # finding the leftovers of another is what brings it back


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
            continue  # its owner ended just now
        except OSError as problem:  # a file or a symlink of that name, or a folder of another user
            raise _in_the_way(folder, beside, problem) from problem
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            if fresh:
                continue  # someone takes our new folder for a leftover: begin again
            raise BeingWritten(
                f"{beside}: another process is writing it; wait for its end"
            ) from None
        except OSError:
            pass  # a file system without locks: then two writers at once are the user's care
        if fresh and _is_still(folder, descriptor):
            return descriptor
        if _is_still(folder, descriptor):
            if (folder / REPLACED).exists() and not beside.exists():
                (folder / REPLACED).rename(beside)  # the power went between two names
            try:
                shutil.rmtree(folder)
            except FileNotFoundError:
                pass  # somebody else was faster
            except OSError as problem:
                os.close(descriptor)
                raise _in_the_way(folder, beside, problem) from problem
        os.close(descriptor)


def _in_the_way(folder: Path, beside: Path, problem: OSError) -> UserError:
    return UserError(
        f"{beside}: cannot be written while {folder} is in the way ({problem.strerror}); remove it"
    )


def _is_still(folder: Path, descriptor: int) -> bool:
    """Whether the folder of that name is the one that is locked."""
    try:
        return os.path.samestat(folder.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
