"""The display of a running training: a live line on a terminal, plain lines in a log."""

import math
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from bigsvm.core.messages import format_duration
from bigsvm.core.stop_rule import StopRule
from bigsvm.terminal.logs import is_quiet, log, log_only_to_file

if TYPE_CHECKING:
    from rich.text import Text

SECONDS_BETWEEN_LINES = 5.0


@dataclass(frozen=True)
class Report:
    """The progress of a run; one line of metrics.jsonl. Defines the words shown to users.

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
    The drift, which the summary has beside these, is the largest error of the updated gradient
    against the one that is recomputed from the coefficients at the end.
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
        """Show the progress of the run."""

    def log(self, message: str) -> None:
        """Show a message permanently."""


class TimeLeft:
    """Estimates the time until the first stop condition: iterations, time limit or gap.

    The gap falls about exponentially, with jumps: a line is fitted to its logarithm over the latter
    half of the reports.
    """

    def __init__(self, stop_rule: StopRule, max_iterations: int, time_limit: float | None) -> None:
        self._stop_rule = stop_rule
        self._max_iterations = max_iterations
        self._deadline = math.inf if time_limit is None else time.monotonic() + time_limit
        self._past: deque[tuple[float, int, float]] = deque(maxlen=400)
        self.rate = 0.0

    def update(self, report: Report) -> float:
        """Seconds left; infinity while there is no estimate."""
        now = time.monotonic()
        gap = report.gap if self._stop_rule.absolute else report.relative_gap
        self._past.append((now, report.iteration, math.log(min(max(gap, 1e-300), 1e300))))
        recent = list(self._past)[len(self._past) // 2 :]
        if len(recent) < 2 or recent[-1][0] <= recent[0][0]:
            return math.inf
        span = recent[-1][0] - recent[0][0]
        self.rate = (recent[-1][1] - recent[0][1]) / span
        ends = [self._deadline - now]
        if self.rate > 0:
            ends.append((self._max_iterations - report.iteration) / self.rate)
        middle_time = sum(t for t, _, _ in recent) / len(recent)
        middle_gap = sum(g for _, _, g in recent) / len(recent)
        slope = sum((t - middle_time) * (g - middle_gap) for t, _, g in recent)
        slope /= sum((t - middle_time) ** 2 for t, _, _ in recent)
        if slope < 0:
            target = self._stop_rule.absolute or self._stop_rule.relative
            ends.append((math.log(target) - recent[-1][2]) / slope)
        return max(0.0, min(ends))


def format_report(report: Report, rate: float, left: float) -> str:
    """One report as text; rate and time left only once they are known."""
    return (
        f"iteration {report.iteration:>9,}  pass {report.passes:>3,}  gap {report.gap:.2e}  "
        f"relative {report.relative_gap:.1e}  support {report.support:>7,}  "
        f"working {report.working:>7,}"
        + (f"  {rate:>7,.0f} it/s" if rate > 0 else "")
        + f"  {format_duration(report.seconds)} gone"
        + (f", about {format_duration(left)} left" if math.isfinite(left) else "")
    )


def format_live(report: Report, gone: float, left: float) -> str:
    """One report, `gone` seconds after the start, in at most 80 columns where numbers allow it."""
    parts = [
        f"it {report.iteration:,}",
        f"pass {report.passes:,}",
        f"rel gap {report.relative_gap:.1e}",
        f"sv {report.support:,}/{report.working:,}",
        format_duration(gone) + (f", {format_duration(left)} left" if math.isfinite(left) else ""),
    ]
    wide = "  ".join(parts)
    return wide if len(wide) <= 80 else " ".join(parts)


class _LogDisplay:
    def __init__(self, time_left: TimeLeft) -> None:
        self._time_left = time_left
        self._last = -math.inf

    def report(self, report: Report) -> None:
        left = self._time_left.update(report)
        if time.monotonic() - self._last >= SECONDS_BETWEEN_LINES:
            self._last = time.monotonic()
            self.log(format_report(report, self._time_left.rate, left))

    def log(self, message: str) -> None:
        log(message)


class _LiveDisplay:
    """A line that is refreshed by a thread of its own, so that it never stands still."""

    def __init__(self, time_left: TimeLeft) -> None:
        from rich.console import Console
        from rich.live import Live

        self._time_left = time_left
        self._report: Report | None = None
        self._left = math.inf
        self._logged = -math.inf
        self._at = time.monotonic()
        console = Console(stderr=True, highlight=False)
        self.live = Live(console=console, refresh_per_second=2, get_renderable=self._line)

    def _line(self) -> "Text":
        from rich.text import Text

        since = time.monotonic() - self._at
        if self._report is None:
            return Text(f"preparing: {format_duration(since)}")
        gone = self._report.seconds + since
        line = format_live(self._report, gone, max(0.0, self._left - since))
        return Text(line, no_wrap=True, overflow="ellipsis")

    def report(self, report: Report) -> None:
        left = self._time_left.update(report)
        self._report, self._left, self._at = report, left, time.monotonic()
        self.live.refresh()
        if time.monotonic() - self._logged >= SECONDS_BETWEEN_LINES:
            self._logged = time.monotonic()
            log_only_to_file(format_report(report, self._time_left.rate, left))

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
