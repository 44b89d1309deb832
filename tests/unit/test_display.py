"""The lines that tell how far a training, or other long work, has come."""

import math
import time
from io import StringIO
from types import SimpleNamespace

import pytest

from bigsvm.core.stop_rule import StopRule
from bigsvm.terminal.progress import show_progress
from bigsvm.training.display import Report, TimeLeft, format_live, format_report, open_display

REPORT = Report(440, 0, 2e-3, 0.01, 0.1, 60, 50, 9.2, 0)


def test_a_line_leaves_out_what_is_not_known_yet() -> None:
    first = format_report(REPORT, TimeLeft(StopRule(relative=1e-3), 1000, None).rate, math.inf)
    assert first.endswith("working      60  9 s gone")
    assert format_report(REPORT, 100.0, 70.0).endswith("100 it/s  9 s gone, about 70 s left")


def test_the_live_line_fits_80_columns() -> None:
    assert format_live(REPORT, 9.2, 70.0) == (
        "it 440  pass 0  rel gap 1.0e-02  sv 50/60  9 s, 70 s left"
    )
    large = Report(12_345_678, 999, 2e-3, 0.01, 0.1, 234_567, 123_456, 9.2, 0)
    assert len(format_live(large, 5000.0, 5000.0)) <= 80


def test_the_live_line_moves_between_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even while compiled code, which releases the GIL as `sleep` does, computes for seconds."""
    terminal = StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    with open_display(TimeLeft(StopRule(relative=1e-3), 1000, None)) as display:
        display.report(REPORT)
        time.sleep(2.3)
    assert {f"sv 50/60  {seconds} s" in terminal.getvalue() for seconds in (9, 10, 11)} == {True}


def test_progress_tells_the_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr("bigsvm.terminal.progress.SECONDS_BETWEEN_LINES", 0.0)
    clock = iter([0.0, 10.0, 70.0])
    monkeypatch.setattr(
        "bigsvm.terminal.progress.time", SimpleNamespace(monotonic=lambda: next(clock))
    )
    with show_progress() as progress:
        progress("folds", 4, 100)
        progress("folds", 24, 100)
    assert capsys.readouterr().err.splitlines() == [
        "folds: 4 of 100",
        "folds: 24 of 100, about 4 min left",
    ]
