"""Ctrl-C as a wish to end in order."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def noted_ctrl_c() -> Iterator[Callable[[], bool]]:
    """Yield what tells whether Ctrl-C was pressed; the second one works as ever."""
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield pressed.is_set  # signals belong to the main thread
        return
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        yield pressed.is_set  # somebody else's
        return

    def note(number: int, frame: FrameType | None) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()

    signal.signal(signal.SIGINT, note)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, before)
