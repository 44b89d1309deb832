"""The callback by which long operations report progress; `bigsvm.terminal` displays it."""

from collections.abc import Callable

# (what is being done, amount done, total amount or None if unknown)
Progress = Callable[[str, int, int | None], None]


def no_progress(what: str, done: int, total: int | None) -> None:
    """Ignore the report."""
