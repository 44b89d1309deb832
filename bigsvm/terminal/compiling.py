"""Tell who waits that code is being compiled: only the first start of a command does that."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Timer

from numba.core import event

SECONDS_UNTOLD = 1.0


class _Compiling(event.Listener):
    """Adds up the time that compiling takes; code that is loaded from the cache takes none."""

    def __init__(self) -> None:
        self._depth = 0  # a function is compiled while one that calls it is
        self._seconds = 0.0
        self._began = 0.0
        self._told = False
        self._timer = Timer(0, self._tell)

    def on_start(self, _: event.Event) -> None:
        self._depth += 1
        if self._depth == 1:
            self._began = time.monotonic()
            self._timer = Timer(max(0.0, SECONDS_UNTOLD - self._seconds), self._tell)
            self._timer.daemon = True
            self._timer.start()

    def on_end(self, _: event.Event) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._timer.cancel()
            self._seconds += time.monotonic() - self._began

    def _tell(self) -> None:
        if not self._told:
            self._told = True
            with suppress(OSError):  # nobody reads it any more: no reason to stop
                print("compiling; only the first start takes so long", file=sys.stderr, flush=True)


@contextmanager
def notify_compilation() -> Iterator[None]:
    """Say once, on stderr, that code is being compiled, if that takes a second or more in all."""
    with event.install_listener("numba:compile", _Compiling()):
        yield
