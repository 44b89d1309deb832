"""The display of a running training: a live line on a terminal, plain lines in a log."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from bigsvm.core.messages import format_duration
from bigsvm.core.stop_rule import StopRule
from bigsvm.terminal.logs import is_quiet, log, log_only_to_file

if TYPE_CHECKING:
    from rich.text import Text

SECONDS_BETWEEN_LINES = 5.0
SECONDS_BETWEEN_STEPS = 30.0  # the same, between two passes
LIVE_SECONDS = 1.0
Left = tuple[float, float]  # the fewest and the most seconds
_MOST_REPORTS = 400
_FORECASTS = 5  # fewer may agree by chance
_SOON = 10.0


@dataclass(frozen=True)
class Report:
    """The progress of a run; one line of metrics.jsonl. Defines the terms shown to users.

    Attributes
    ----------
    iteration : int
        Steps of Frank-Wolfe taken, over all classes.
    passes : int
        Passes over the data that updated the gradient.
    gap : float
        The pairwise Frank-Wolfe gap, max g over the support minus min g; 0 at the optimum.
    relative_gap : float
        gap / a'Qa, the gap as a fraction of the margin; what `solver.tolerance` bounds.
    objective : float
        1/2 a'Qa, which training minimises.
    working : int
        The working set: patterns that have joined the problem. `fw` works on all of them.
    support : int
        Support vectors: patterns with a positive coefficient.
    seconds : float
        Time of training so far.
    rss : int
        Resident memory of the process, in bytes.

    Notes
    -----
    The drift, which the summary adds to these, is the largest difference between the updated
    gradient and the one recomputed from the coefficients at the end.
    """

    iteration: int
    passes: int
    gap: float
    relative_gap: float
    objective: float
    working: int
    support: int
    seconds: float
    rss: int


class Display(Protocol):
    """Shows reports and messages."""

    def report(self, report: Report) -> None:
        """Show the progress of the run, at a pass over the data."""

    def steps(self, iteration: int, report_now: Callable[[], Report]) -> None:
        """Show the steps since the last pass, now and then.

        Gaps are those of that pass. `report_now` is called only if a report is shown: it is costly.
        """

    def log(self, message: str) -> None:
        """Show a message permanently."""


@dataclass
class _Earlier:
    """An earlier report, and the forecast that was made then."""

    time: float
    iteration: int
    log_gap: float
    end: float = math.inf  # the forecast time of the end


class TimeLeft:
    """Estimates the time until the first stop condition: iterations, time limit or gap.

    The gap falls about exponentially, with jumps: a line is fitted to its logarithm over the latter
    half of the time. Such forecasts may be far off, so the range of those made over that half is
    shown, or nothing if they disagree.
    """

    def __init__(self, stop_rule: StopRule, max_iterations: int, time_limit: float | None) -> None:
        self._stop_rule = stop_rule
        self._max_iterations = max_iterations
        self._deadline = math.inf if time_limit is None else time.monotonic() + time_limit
        self._past: list[_Earlier] = []
        self.rate = 0.0

    def update(self, report: Report) -> Left | None:
        """The fewest and the most seconds left; None while there is no estimate."""
        gap = report.gap if self._stop_rule.absolute else report.relative_gap
        log_gap = math.log(min(max(gap, 1e-300), 1e300))
        now = _Earlier(time.monotonic(), report.iteration, log_gap)
        if len(self._past) >= _MOST_REPORTS:
            del self._past[1::2]  # sparser, over the same time
        self._past.append(now)
        middle = (self._past[0].time + now.time) / 2
        recent = [past for past in self._past if past.time >= middle]
        if len(recent) < 2:  # the last pass took as long as all before it
            recent = self._past[-2:]
        now.end = self._forecast(recent)
        ends = [past.end for past in recent]
        low, high = max(0.0, min(ends) - now.time), max(0.0, max(ends) - now.time)
        gone = now.time - self._past[0].time
        if len(ends) >= _FORECASTS and high - low <= max(low, gone / 10):
            return low, high
        limit = self._deadline - now.time
        return (0.0, max(0.0, limit)) if math.isfinite(limit) else None

    def _forecast(self, recent: list[_Earlier]) -> float:
        """The time of the end."""
        first, now = recent[0], recent[-1]
        if now.time <= first.time:
            return self._deadline
        self.rate = (now.iteration - first.iteration) / (now.time - first.time)
        ends = [self._deadline]
        if self.rate > 0:
            ends.append(now.time + (self._max_iterations - now.iteration) / self.rate)
        middle_time = sum(past.time for past in recent) / len(recent)
        middle_gap = sum(past.log_gap for past in recent) / len(recent)
        slope = sum((past.time - middle_time) * (past.log_gap - middle_gap) for past in recent)
        slope /= sum((past.time - middle_time) ** 2 for past in recent)
        if slope < 0:
            target = self._stop_rule.absolute or self._stop_rule.relative
            ends.append(max(now.time, middle_time + (math.log(target) - middle_gap) / slope))
        return min(ends)


def format_left(left: Left | None) -> str:
    """The time left, such as "about 3 min left", "3-5 min left" or "left unknown"."""
    if left is None:
        return "left unknown"
    low, high = map(format_duration, left)
    if low == high:
        return f"about {high} left"
    if left[0] < _SOON and left[1] >= _SOON:
        return f"at most {high} left"
    number, unit = low.split()
    return f"{number if high.endswith(unit) else low}-{high} left"


def format_report(report: Report, rate: float, left: Left | None) -> str:
    """One report as text; the rate only once it is known."""
    return (
        f"iteration {report.iteration:>9,}  pass {report.passes:>3,}  gap {report.gap:.2e}  "
        f"relative {report.relative_gap:.1e}  support {report.support:>7,}  "
        f"working {report.working:>7,}"
        + (f"  {rate:>7,.0f} it/s" if rate > 0 else "")
        + f"  {format_duration(report.seconds)} gone, {format_left(left)}"
    )


def format_live(report: Report, gone: float, left: Left | None) -> str:
    """One report, `gone` seconds after the start, in at most 80 columns where numbers allow it."""
    parts = [
        f"it {report.iteration:,}",
        f"pass {report.passes:,}",
        f"rel gap {report.relative_gap:.1e}",
        f"sv {report.support:,}/{report.working:,}",
        f"{format_duration(gone)}, {format_left(left)}",
    ]
    wide = "  ".join(parts)
    return wide if len(wide) <= 80 else " ".join(parts)


class _LogDisplay:
    def __init__(self, time_left: TimeLeft) -> None:
        self._time_left = time_left
        self._left: Left | None = None
        self._last = -math.inf

    def report(self, report: Report) -> None:
        self._left = self._time_left.update(report)
        if time.monotonic() - self._last >= SECONDS_BETWEEN_LINES:
            self._log_report(report)

    def steps(self, iteration: int, report_now: Callable[[], Report]) -> None:
        if time.monotonic() - self._last >= SECONDS_BETWEEN_STEPS:
            self._log_report(report_now())

    def _log_report(self, report: Report) -> None:
        self._last = time.monotonic()
        self.log(format_report(report, self._time_left.rate, self._left))

    def log(self, message: str) -> None:
        log(message)


class _LiveDisplay:
    """A line that a separate thread refreshes, so that its clock runs during long passes."""

    def __init__(self, time_left: TimeLeft) -> None:
        from rich.console import Console
        from rich.live import Live

        self._time_left = time_left
        self._report: Report | None = None
        self._iteration = 0
        self._left: Left | None = None
        self._logged = -math.inf
        self._estimated_at = self._at = time.monotonic()
        console = Console(stderr=True, highlight=False)
        self.live = Live(console=console, refresh_per_second=2, get_renderable=self._line)

    def _line(self) -> "Text":
        from rich.text import Text

        now = time.monotonic()
        if self._report is None:
            return Text(f"preparing: {format_duration(now - self._at)}")
        left = self._left
        if left is not None:
            since = now - self._estimated_at
            left = max(0.0, left[0] - since), max(0.0, left[1] - since)
        report = replace(self._report, iteration=self._iteration)
        line = format_live(report, report.seconds + now - self._at, left)
        return Text(line, no_wrap=True, overflow="ellipsis")

    def report(self, report: Report) -> None:
        self._left, self._estimated_at = self._time_left.update(report), time.monotonic()
        self._show(report)
        if time.monotonic() - self._logged >= SECONDS_BETWEEN_LINES:
            self._logged = time.monotonic()
            log_only_to_file(format_report(report, self._time_left.rate, self._left))

    def steps(self, iteration: int, report_now: Callable[[], Report]) -> None:
        self._iteration = iteration
        if time.monotonic() - self._at >= LIVE_SECONDS:
            self._show(report_now())

    def _show(self, report: Report) -> None:
        self._report, self._iteration, self._at = report, report.iteration, time.monotonic()
        self.live.refresh()

    def log(self, message: str) -> None:
        log(message)  # above the line: rich redirects stderr


@contextmanager
def open_display(time_left: TimeLeft) -> Iterator[Display]:
    """A display on stderr: live on a terminal, lines otherwise."""
    if sys.stderr.isatty() and not is_quiet():
        display = _LiveDisplay(time_left)
        display.live.start()
        try:
            yield display
        finally:
            display.live.stop()
    else:
        yield _LogDisplay(time_left)
