"""Errors that end a command with one line: user mistakes and system failures."""

import errno

# Not a user mistake: the exit code is 1, and the command can be repeated once there is space.
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class UserError(Exception):
    """A mistake in arguments, config or data.

    The message is one line: what is wrong, where (file, row, column, config key), and what to do.
    Commands print it without a traceback and exit with code 2.
    """


class BeingWritten(UserError):
    """Another process is writing the same file or store; a caller may wait for it."""


class Unreachable(OSError):
    """A server does not respond; exit code 1."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(errno.ETIMEDOUT, why, where)


class ClusterLost(ConnectionError):
    """A Dask cluster, or all of its workers, is gone: the run is saved; exit code 1."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(errno.ENOTCONN, why, f"cluster {where}")


class TrainerGone(OSError):
    """The training that `evaluate` follows ended without a summary: it was killed or failed."""

    def __init__(self, where: str) -> None:
        super().__init__(
            errno.ESRCH,
            "the trainer ended without a summary; run its command again to resume",
            where,
        )
