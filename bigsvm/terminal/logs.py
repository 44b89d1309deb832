"""Messages of commands, through the standard `logging`: to stderr, and to a file on request.

Warnings and errors are shown with their level in front, notes as they are. Commands in a message
are written `python -m bigsvm.train`; to a user of the program `bigsvm` they are shown as `bigsvm
train`.
"""

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bigsvm.core.errors import UserError

AS_MODULE, AS_PROGRAM = "python -m bigsvm.", "bigsvm "
_called_as = AS_MODULE

LOGGER = logging.getLogger("bigsvm")
_ONLY_FILE = {"only_file": True}


@contextmanager
def called_as_program() -> Iterator[None]:
    """Inside the block, messages call commands as `bigsvm COMMAND`."""
    global _called_as
    _called_as = AS_PROGRAM
    try:
        yield
    finally:
        _called_as = AS_MODULE


def as_called(text: str) -> str:
    """Text with its commands as the user calls them."""
    return text.replace(AS_MODULE, _called_as)


class _Stderr(logging.Handler):
    """Writes to what `sys.stderr` is at the moment: a live line replaces it for a while."""

    def emit(self, record: logging.LogRecord) -> None:
        if hasattr(record, "only_file"):
            return
        level = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        with suppress(OSError):  # the reader of stderr may be gone
            print(level + as_called(record.getMessage()), file=sys.stderr, flush=True)


_stderr = _Stderr(logging.INFO)
LOGGER.addHandler(_stderr)
LOGGER.setLevel(logging.INFO)
LOGGER.propagate = False


def configure(quiet: bool, verbose: bool, log_file: Path | None) -> None:
    """Configure which messages are shown, and whether they are also written to a file.

    Parameters
    ----------
    quiet : bool
        Warnings and errors only.
    verbose : bool
        Also details.
    log_file : Path or None
        Appended to, with the time and level of each message; not affected by `quiet`.
    """
    if quiet and verbose:
        raise UserError("--quiet and --verbose: choose one of them")
    detail = logging.DEBUG if verbose else logging.INFO
    _stderr.setLevel(logging.WARNING if quiet else detail)
    LOGGER.setLevel(detail)
    for old in [handler for handler in LOGGER.handlers if handler is not _stderr]:
        LOGGER.removeHandler(old)
        old.close()
    if log_file is not None:
        try:
            handler = logging.FileHandler(log_file, encoding="utf-8", errors="backslashreplace")
        except OSError as problem:
            reason = problem.strerror
            raise UserError(f"--log-file {log_file}: cannot be written ({reason})") from problem
        form = logging.Formatter("%(asctime)sZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S")
        form.converter = time.gmtime
        handler.setFormatter(form)
        LOGGER.addHandler(handler)
    logging.raiseExceptions = False  # a full disk under the log file must not disturb a command


def is_quiet() -> bool:
    """Whether progress is not to be shown."""
    return _stderr.level > logging.INFO


def log(message: str) -> None:
    """Show a note, or a warning if it begins with "warning: "."""
    warning = message.removeprefix("warning: ")
    LOGGER.log(logging.INFO if warning == message else logging.WARNING, "%s", warning)


def log_only_to_file(message: str) -> None:
    """Write a note that a terminal shows in another way."""
    LOGGER.info("%s", message, extra=_ONLY_FILE)


def print_result(line: str) -> None:
    """Print a result on standard output, and write it to the log file."""
    line = as_called(line)
    print(line)
    log_only_to_file(line)
