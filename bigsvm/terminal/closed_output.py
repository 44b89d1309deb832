"""A terminal that was closed, a log that cannot be written: no reason for a command to stop."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO


class _Unheard:
    """A stream that goes on to nowhere when it cannot be written to."""

    def __init__(self, stream: TextIO, reasons: set[int] | None) -> None:
        self._stream, self._reasons = stream, reasons

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except OSError as failure:
            self._to_nowhere(failure)
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as failure:
            self._to_nowhere(failure)

    def _to_nowhere(self, failure: OSError) -> None:
        if self._reasons is not None and failure.errno not in self._reasons:
            raise failure
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())  # what is still in its buffer goes there, too
        os.close(nowhere)


def _nowhere() -> TextIO:
    """What Python leaves None: a stream that was closed (`>&-`) before the command began."""
    return Path(os.devnull).open("w")


@contextmanager
def tolerate_closed_output() -> Iterator[None]:
    """Let neither the messages of a command nor its terminal, once they are gone, end it.

    A full disk under its output, or a reader that left (`| head`), is another matter.
    """
    before = sys.stdout, sys.stderr
    sys.stdout = _Unheard(sys.stdout or _nowhere(), {errno.EIO})
    sys.stderr = _Unheard(sys.stderr or _nowhere(), None)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
