"""A message while numba compiles, which only the first start of a command has to wait for."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

from numba.core import event

from bigsvm.terminal.logs import log

SECONDS_BEFORE_MESSAGE = 1.0


class CompileTimer(event.Listener):
    """Adds up the time spent compiling, which loading code from the cache is not."""

    def __init__(self) -> None:
        self._depth = 0  # events nest: a function is compiled while its caller is
        self._seconds = 0.0
        self._began = 0.0
        self._printed = False
        self._timer = Timer(0, self._print)

    @property
    def seconds(self) -> float:
        """The time spent compiling so far."""
        running = time.monotonic() - self._began if self._depth else 0.0
        return self._seconds + running

    def on_start(self, _: event.Event) -> None:
        """Called by numba when it begins to compile a function."""
        self._depth += 1
        if self._depth == 1:
            self._began = time.monotonic()
            self._timer = Timer(max(0.0, SECONDS_BEFORE_MESSAGE - self._seconds), self._print)
            self._timer.daemon = True
            self._timer.start()

    def on_end(self, _: event.Event) -> None:
        """Called by numba when it has compiled a function."""
        self._depth -= 1
        if self._depth == 0:
            self._timer.cancel()
            self._seconds += time.monotonic() - self._began

    def _print(self) -> None:
        if not self._printed:
            self._printed = True
            log("compiling; only the first start takes so long")


@contextmanager
def notify_compilation() -> Iterator[CompileTimer]:
    """Print one line on stderr if compiling takes a second or more in total."""
    timer = CompileTimer()
    with event.install_listener("numba:compile", timer):
        yield timer
