"""Workers that are there and do not stir: frozen, swapping, or cut off without a word."""

import time
from collections.abc import Callable, Mapping

# A worker reports every half second; in clusters of hundreds every few seconds.
_SILENT_SECONDS = 20.0
_LOOK_SECONDS = 5.0


class Heartbeats:
    """Tells the user about workers not heard of for a while, once each.

    Parameters
    ----------
    last_seen : callable
        When the scheduler has heard of each worker, by a clock of its own.
    say : callable
        Shows a line to the user.
    """

    def __init__(
        self, last_seen: Callable[[], Mapping[str, float]], say: Callable[[str], None]
    ) -> None:
        self._last_seen = last_seen
        self._say = say
        self._since: dict[str, tuple[float, float]] = {}
        self._looked = time.monotonic()

    def look(self, asked: set[str]) -> None:
        """To be called often while waiting for the workers `asked`; the scheduler is asked less."""
        now = time.monotonic()
        if now < self._looked + _LOOK_SECONDS:
            return
        self._looked = now
        for address, seen in self._last_seen().items():
            before, since = self._since.get(address, (None, now))
            if seen != before:
                self._since[address] = seen, now
            elif address in asked and now - since >= _SILENT_SECONDS:
                self._since[address] = seen, float("inf")  # told
                self._say(
                    f"waiting for the worker at {address}, not heard of for {now - since:.0f} s; "
                    "it is given up when Dask does (distributed.scheduler.worker-ttl)"
                )
