"""Ending a command in order when a signal asks for it: Ctrl-C, SIGTERM, a closed terminal."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType


class GracefulExit:
    """Records the first SIGINT, SIGTERM or SIGHUP, so that a loop can save its state and return.

    A second signal kills the process at once, except SIGHUP: a closing terminal may send several.

    Attributes
    ----------
    signal : int or None
        The signal received first.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._nothing_to_save = False
        self._terminal_streams = [number for number in (1, 2) if os.isatty(number)]

    @contextmanager
    def handle_signals(self) -> Iterator["GracefulExit"]:
        """Install the handlers inside the block."""
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup
            numbers.append(signal.SIGHUP)
        before = {number: signal.signal(number, self._handle) for number in numbers}
        try:
            yield self
        finally:
            for number, handler in before.items():
                # While the process is exiting, another signal ends it without a traceback.
                signal.signal(number, handler if self.signal is None else signal.SIG_DFL)

    @contextmanager
    def exit_immediately(self) -> Iterator[None]:
        """Inside the block there is nothing to save: the first signal raises SystemExit."""
        if self.signal is not None:
            raise SystemExit(128 + self.signal)
        self._nothing_to_save = True
        try:
            yield
        finally:
            self._nothing_to_save = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:  # writing to a terminal that is gone would fail
            null = os.open(os.devnull, os.O_WRONLY)
            for stream in self._terminal_streams:
                os.dup2(null, stream)
            os.close(null)
        elif self.signal is not None:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        if self._nothing_to_save and self.signal is None:
            self.signal = number
            raise SystemExit(128 + number)
        self.signal = self.signal or number
        # os.write, because the signal may have interrupted a print; the reader of a pipe
        # (`2>&1 | tee log`) may be gone.
        with suppress(OSError):
            os.write(2, b"\nsaving, then exiting (send the signal again to exit at once)\n")

    @property
    def exit_code(self) -> int:
        """128 + the signal received, as a shell has it; 0 without a signal."""
        return 0 if self.signal is None else 128 + self.signal

    def __call__(self) -> bool:
        return self.signal is not None


@contextmanager
def defer_interrupt() -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether Ctrl-C was pressed; a second Ctrl-C raises as usual.

    Does nothing outside the main thread, where Python allows no signal handlers, and where the
    application has installed a handler of its own.
    """
    pressed = threading.Event()
    before = signal.getsignal(signal.SIGINT)
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or before is not signal.default_int_handler:
        yield pressed.is_set
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()

    signal.signal(signal.SIGINT, handle)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Let SIGTERM unwind the stack as Ctrl-C does, so that temporary files are removed."""

    def handle(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
