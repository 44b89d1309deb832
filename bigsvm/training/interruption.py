"""The first signal to end is remembered, for a run to end in order; the second one ends it."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType


class Interruption:
    """Remembers the first SIGINT, SIGTERM or SIGHUP, for the loop to end in order.

    The second one kills, but for SIGHUP: a terminal that closes may send several.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._nothing_to_save = False
        self._on_terminal = [number for number in (1, 2) if os.isatty(number)]

    @contextmanager
    def watched(self) -> Iterator["Interruption"]:
        """Watch for signals inside the block."""
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup
            numbers.append(signal.SIGHUP)
        before = {number: signal.signal(number, self._note) for number in numbers}
        try:
            yield self
        finally:
            for number, handler in before.items():
                # Once more while it leaves: to the end at once, not into a traceback.
                signal.signal(number, handler if self.signal is None else signal.SIG_DFL)

    @contextmanager
    def leaving_at_once(self) -> Iterator[None]:
        """Inside the block there is nothing to save yet: the first signal unwinds and ends."""
        if self.signal is not None:
            raise SystemExit(128 + self.signal)
        self._nothing_to_save = True
        try:
            yield
        finally:
            self._nothing_to_save = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:  # the terminal is gone: what is still said must find a place
            nowhere = os.open(os.devnull, os.O_WRONLY)
            for gone in self._on_terminal:
                os.dup2(nowhere, gone)
            os.close(nowhere)
        elif self.signal is not None:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        if self._nothing_to_save and self.signal is None:
            self.signal = number
            raise SystemExit(128 + number)
        self.signal = self.signal or number
        # Not print: it may be at work just now. And the reader may be gone (`2>&1 | tee log`).
        with suppress(OSError):
            os.write(2, b"\nsaving, then leaving (once more to leave at once)\n")

    def __call__(self) -> bool:
        return self.signal is not None
