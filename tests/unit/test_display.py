"""The lines that tell how far a training, or other long work, has come."""

import json
import math
import time
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

from bigsvm import cli
from bigsvm.core.stop_rule import StopRule
from bigsvm.files.checked_tensors import read_tensors
from bigsvm.terminal.progress import show_progress
from bigsvm.training.display import (
    Report,
    TimeLeft,
    format_left,
    format_live,
    format_report,
    open_display,
)
from tests.support.small_run import make_store
from tests.support.trainings import newest_checkpoint, reported, snapshots, summary

REPORT = Report(440, 0, 2e-3, 0.01, 0.1, 60, 50, 9.2, 0)


def test_a_line_leaves_out_what_is_not_known_yet() -> None:
    first = format_report(REPORT, TimeLeft(StopRule(relative=1e-3), 1000, None).rate, None)
    assert first.endswith("working      60  9 s gone, left unknown")
    told = format_report(REPORT, 100.0, (70.0, 70.4))
    assert told.endswith("100 it/s  9 s gone, about 70 s left")


@pytest.mark.parametrize(
    ("left", "words"),
    [
        (None, "left unknown"),
        ((0.0, 1800.0), "at most 30 min left"),
        ((700.0, 1300.0), "12-22 min left"),
        ((3000.0, 9000.0), "50 min-2.5 h left"),
        ((2.0, 7.0), "2-7 s left"),
        ((1795.0, 1805.0), "about 30 min left"),
    ],
)
def test_the_time_left_is_a_range(left: tuple[float, float] | None, words: str) -> None:
    assert format_left(left) == words


def test_the_live_line_fits_80_columns() -> None:
    assert format_live(REPORT, 9.2, (70.0, 90.0)) == (
        "it 440  pass 0  rel gap 1.0e-02  sv 50/60  9 s, 70-90 s left"
    )
    large = Report(12_345_678, 999, 2e-3, 0.01, 0.1, 234_567, 123_456, 9.2, 0)
    for left in (None, (700.0, 1300.0), (4900.0, 5000.0)):
        assert len(format_live(large, 5000.0, left)) <= 80


def forecasts(
    monkeypatch: pytest.MonkeyPatch, seconds: list[float], gaps: list[float], **limits: float
) -> list[tuple[float, float] | None]:
    """The time left after each of these reports, of a rule of 1e-3."""
    clock = SimpleNamespace(monotonic=lambda: 0.0)
    monkeypatch.setattr("bigsvm.training.display.time", clock)
    time_left = TimeLeft(StopRule(relative=1e-3), 10**9, limits.get("time_limit"))
    found = []
    for k, (now, gap) in enumerate(zip(seconds, gaps, strict=True)):
        clock.monotonic = lambda now=now: now
        found.append(time_left.update(replace(REPORT, iteration=1000 * k, relative_gap=gap)))
    return found


def test_where_the_gap_falls_steadily_the_range_has_the_end_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Over more reports than are remembered; the end is at 1,000 s."""
    seconds = [0.5 * k for k in range(1, 1800)]
    noise = np.random.default_rng(0).normal(0, 0.2, len(seconds))
    gaps = [math.exp(math.log(1e-3) * t / 1000 + e) for t, e in zip(seconds, noise, strict=True)]
    found = forecasts(monkeypatch, seconds, gaps)
    assert found[3] is None
    known = [(t, left) for t, left in zip(seconds, found, strict=True) if left is not None]
    assert len(known) > 0.7 * len(seconds)
    right = [t for t, (low, high) in known if t + 0.8 * low <= 1000 <= t + 1.2 * high]
    assert len(right) > 0.9 * len(known)


def test_the_rate_is_that_since_the_last_pass_where_it_took_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SimpleNamespace(monotonic=lambda: 0.0)
    monkeypatch.setattr("bigsvm.training.display.time", clock)
    time_left = TimeLeft(StopRule(relative=1e-3), 10**9, None)
    for now, iteration in ((1.0, 100), (2.0, 200), (10.0, 4200)):
        clock.monotonic = lambda now=now: now
        time_left.update(replace(REPORT, iteration=iteration))
    assert time_left.rate == 500


def test_where_forecasts_disagree_none_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes minutes apart, after which the gap jumps: covtype was said to end in 9 to 126 min."""
    seconds = [60.0, 200.0, 410.0, 700.0, 1000.0, 1500.0, 2100.0, 2700.0, 3300.0]
    gaps = [3.0, 3.6, 0.4, 1.2, 0.2, 0.9, 0.1, 0.3, 0.02]
    assert set(forecasts(monkeypatch, seconds, gaps)) == {None}
    limited = forecasts(monkeypatch, seconds, gaps, time_limit=3600.0)
    assert limited[-1] == (0.0, 300.0), "a limit is known"


def test_the_live_line_moves_between_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even while compiled code, which releases the GIL as `sleep` does, computes for seconds."""
    terminal = StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    with open_display(TimeLeft(StopRule(relative=1e-3), 1000, None)) as display:
        display.report(REPORT)
        display.steps(555, lambda: 1 / 0)  # not counted more than once a second
        time.sleep(2.3)
        display.steps(777, lambda: replace(REPORT, iteration=777, working=80, seconds=11.5))
    assert "it 555  pass 0  rel gap 1.0e-02  sv 50/60" in terminal.getvalue()
    assert "it 777  pass 0  rel gap 1.0e-02  sv 50/80" in terminal.getvalue()
    assert {f"sv 50/60  {seconds} s" in terminal.getvalue() for seconds in (9, 10, 11)} == {True}


@pytest.fixture
def block_config(tmp_path: Path) -> Path:
    """600 rows, which the block schedule solves whole, without a pass."""
    values = {
        "data": {"train": str(make_store(tmp_path / "s.zarr"))},
        "model": {"C": 10, "kernel": {"name": "rbf", "sigma": 1.0}},
        "solver": {"schedule": "block", "tolerance": 1e-4},
        "run": {"snapshot_every": 50},
    }
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(values))
    return tmp_path / "c.yaml"


def test_a_long_subproblem_shows_its_steps(
    block_config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Between two lines of metrics.jsonl; at most every 30 s in a log."""
    shown = []
    for seconds in (0.0, 30.0):
        monkeypatch.setattr("bigsvm.training.display.SECONDS_BETWEEN_STEPS", seconds)
        run = block_config.parent / f"every {seconds}"
        assert cli.main(["train", str(block_config), "--run-dir", str(run)]) == 0
        lines = [line.split() for line in capsys.readouterr().err.splitlines()]
        shown.append([int(line[1].replace(",", "")) for line in lines if line[0] == "iteration"])
        assert shown[-1] == sorted(shown[-1])
    often, seldom = shown
    assert len(often) > 10 > len(seldom)
    assert not {50, 100, 150} - set(often) and not set(often) <= set(reported(run))


@pytest.mark.parametrize("limit", [10**6, 120])
def test_a_problem_that_is_solved_whole_has_metrics(
    limit: int, block_config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it goes, and of its end: its gap is known without a pass."""
    monkeypatch.setattr("bigsvm.training.loop.REPORT_SECONDS", 0.0)
    run = block_config.parent / "run"
    arguments = ["--run-dir", str(run), "--set", f"solver.max_iterations={limit}"]
    assert cli.main(["train", str(block_config), *arguments]) == 0
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    ended = summary(run)
    assert ended["passes"] == 0 and ended["status"] != "interrupted"
    assert [line["iteration"] for line in lines][-1] == ended["iterations"] > 100
    assert reported(run) == sorted(set(reported(run))) and {50, 100} <= set(reported(run))
    assert lines[-1]["gap"] == pytest.approx(ended["true_gap"], rel=1e-6)
    assert lines[-1]["relative_gap"] == pytest.approx(ended["true_relative_gap"], rel=1e-6)
    assert lines[-1]["objective"] == pytest.approx(ended["objective"], rel=1e-9)
    falling = [line["objective"] for line in lines]
    assert falling == sorted(falling, reverse=True)


def test_a_run_resumed_inside_a_subproblem_reports_in_order(
    block_config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its gradient is older than the last line of metrics.jsonl."""
    monkeypatch.setattr("bigsvm.training.loop.REPORT_SECONDS", 0.0)
    run = block_config.parent / "run"
    cells = ["--run-dir", str(run), "--set", "solver.hot_set=32"]
    for limit in (*range(40, 400, 40), 10**6):
        limited = [*cells, "--set", f"solver.max_iterations={limit}"]
        assert cli.main(["train", str(block_config), *limited]) == 0
        assert reported(run) == sorted(set(reported(run)))
    assert len(reported(run)) > 1


def test_a_run_resumed_inside_a_subproblem_has_the_same_snapshots(block_config: Path) -> None:
    """Also the one that was due where it resumes, and is missing."""

    def train(name: str, limit: int) -> Path:
        run = block_config.parent / name
        cells = ["--set", "solver.hot_set=32", "--set", "run.snapshot_every=1"]
        limited = [*cells, "--set", f"solver.max_iterations={limit}", "--run-dir", str(run)]
        assert cli.main(["train", str(block_config), *limited]) == 0
        return run

    straight = snapshots(train("straight", 300))
    between_cells = 0
    for limit in range(100, 301, 20):
        run = train("run", limit)
        reached = newest_checkpoint(run)
        arrays, _ = read_tensors(run / f"checkpoints/checkpoint-{reached:010d}.safetensors")
        if "partial index 0" in arrays:
            between_cells += 1
            (run / f"snapshots/model-{reached:08d}.safetensors").unlink()
    train("run", 301)
    found = snapshots(run)
    assert {name: found[name] for name in straight} == straight
    assert between_cells > 5


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
