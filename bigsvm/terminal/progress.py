"""The progress of long operations: a bar on a terminal, plain lines in a log."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bigsvm.core.messages import Progress, format_duration, no_progress
from bigsvm.terminal.logs import is_quiet, log

SECONDS_BETWEEN_LINES = 10.0


@contextmanager
def show_progress() -> Iterator[Progress]:
    """Yield a Progress callback that displays on stderr."""
    if is_quiet():
        yield no_progress
    elif sys.stderr.isatty():
        with _bars() as progress:
            yield progress
    else:
        yield _lines()


@contextmanager
def _bars() -> Iterator[Progress]:
    from rich import progress as rich_progress
    from rich.console import Console

    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.TextColumn("{task.completed:,.0f}"),
        rich_progress.TimeElapsedColumn(),
        rich_progress.TimeRemainingColumn(),
    )
    with rich_progress.Progress(*columns, console=Console(stderr=True)) as display:
        tasks: dict[str, rich_progress.TaskID] = {}

        def show(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = display.add_task(what, total=total)
            display.update(tasks[what], completed=done, total=total)

        yield show


def _lines() -> Progress:
    last = time.monotonic()
    began: dict[str, tuple[float, int]] = {}

    def show(what: str, done: int, total: int | None) -> None:
        nonlocal last
        now = time.monotonic()
        since, first = began.setdefault(what, (now, done))
        if now - last >= SECONDS_BETWEEN_LINES:
            last = now
            in_all = "" if total is None else f" of {total:,}"
            if total is not None and done > first:
                left = (now - since) * (total - done) / (done - first)
                in_all += f", about {format_duration(left)} left"
            log(f"{what}: {done:,}{in_all}")

    return show
