"""Output that can no longer be written, such as a closed terminal, must not end a command."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO


class _DiscardOnError:
    """A text stream that discards everything once a write to it has failed.

    Parameters
    ----------
    stream : TextIO
    codes : set of int or None
        The errno values to tolerate; None for all.
    """

    def __init__(self, stream: TextIO, codes: set[int] | None) -> None:
        self._stream, self._codes = stream, codes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except OSError as failure:
            self._discard(failure)
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as failure:
            self._discard(failure)

    def _discard(self, failure: OSError) -> None:
        if self._codes is not None and failure.errno not in self._codes:
            raise failure
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self._stream.fileno())  # flushes what is still in the buffer there, too
        os.close(null)


def _null_stream() -> TextIO:
    """A stand-in for a stream that was closed (`>&-`) before the command began: None in Python."""
    return Path(os.devnull).open("w")


@contextmanager
def tolerate_closed_output() -> Iterator[None]:
    """Continue when the terminal, or whatever reads stderr, is gone.

    Other failures of stdout still end the command: a full disk, or a reader that left (`| head`).
    """
    before = sys.stdout, sys.stderr
    sys.stdout = _DiscardOnError(sys.stdout or _null_stream(), {errno.EIO})
    sys.stderr = _DiscardOnError(sys.stderr or _null_stream(), None)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
