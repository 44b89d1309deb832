"""What ends a command with one line: a mistake of the user, or something that went away."""

import errno

# Not the user's mistake: what ends so ends with 1, and may be tried again when there is room.
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class UserError(Exception):
    """A mistake in arguments, config or data.

    The message is one line: what is wrong, where (file, row, column, config key), and what to do.
    Commands print it without a traceback and exit with code 2.
    """


class BeingWritten(UserError):
    """Another process is making the very file or store; who needs no more than that may wait."""


class Unreachable(OSError):
    """A server that does not answer now: nobody's mistake, so the exit code is 1."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(errno.ETIMEDOUT, why, where)


class ClusterLost(ConnectionError):
    """A Dask cluster, or all its workers, went away: the run saves itself, and exits with 1."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(errno.ENOTCONN, why, f"cluster {where}")


class TrainerGone(OSError):
    """A training that was followed ended without a summary: killed, or by an error of its own."""

    def __init__(self, where: str) -> None:
        super().__init__(
            errno.ESRCH,
            "its trainer is gone and has left no summary; the same command resumes it",
            where,
        )
