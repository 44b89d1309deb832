"""Detecting workers that are present but silent: frozen, swapping, or cut off."""

import time
from collections.abc import Callable, Mapping

# A worker reports every half second; in clusters of hundreds every few seconds.
_SILENT_SECONDS = 20.0
_CHECK_SECONDS = 5.0


class Heartbeats:
    """Reports workers that have not been heard from for a while, once each.

    Parameters
    ----------
    last_seen : callable
        Returns when the scheduler last heard from each worker, by its own clock.
    log : callable
        Shows a line to the user.
    """

    def __init__(
        self, last_seen: Callable[[], Mapping[str, float]], log: Callable[[str], None]
    ) -> None:
        self._last_seen = last_seen
        self._log = log
        self._since: dict[str, tuple[float, float]] = {}
        self._checked = time.monotonic()

    def check(self, asked: set[str]) -> None:
        """Call this often while waiting for the workers `asked`; it asks the scheduler rarely."""
        now = time.monotonic()
        if now < self._checked + _CHECK_SECONDS:
            return
        self._checked = now
        for address, seen in self._last_seen().items():
            before, since = self._since.get(address, (None, now))
            if seen != before:
                self._since[address] = seen, now
            elif address in asked and now - since >= _SILENT_SECONDS:
                self._since[address] = seen, float("inf")  # reported
                self._log(
                    f"waiting for the worker at {address}, silent for {now - since:.0f} s; Dask "
                    "gives it up after distributed.scheduler.worker-ttl"
                )
