"""Guarantee 2: the same command resumes, however the training ended."""

import json
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bigsvm import load_model
from tests.support.trainings import (
    HANGS,
    Train,
    assert_same_run,
    caught,
    final,
    killed,
    newest_checkpoint,
    reported,
    resumed_at,
    snapshot,
    summary,
    wait_until,
)


@pytest.mark.core
def test_killed_at_any_moment(start: Any, train: Train, straight: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    killed(start, run_dir, times=5)
    last = newest_checkpoint(run_dir)
    assert last > 0
    (run_dir / "snapshots" / ".model-00000300.safetensors.99999999.tmp").write_bytes(b"half")
    assert resumed_at(train(run_dir).stderr) == last
    assert_same_run(run_dir, straight)


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 16
    path.write_bytes(content)


@pytest.mark.core
@pytest.mark.parametrize("damage", [cut_short, flip_a_bit])
def test_a_damaged_checkpoint_is_noticed(
    train: Train, straight: Path, halfway: Path, damage: Callable[[Path], None]
) -> None:
    newest = halfway / "checkpoints" / "checkpoint-0000001500.safetensors"
    damage(newest)
    said = train(halfway).stderr
    assert any(
        line.startswith("warning: ") and str(newest) in line for line in said.splitlines()
    ), said
    assert resumed_at(said) == 1350
    assert_same_run(halfway, straight)


def test_no_checkpoint_left_means_from_the_start(
    train: Train, straight: Path, halfway: Path
) -> None:
    for path in (halfway / "checkpoints").iterdir():
        cut_short(path)
    arguments = ("run.keep_checkpoints=1", "run.checkpoint_every=90", "solver.max_iterations=900")
    said = train(halfway, *arguments).stderr
    assert said.count("warning: ") == 2
    assert "resuming" not in said
    assert final(halfway) == snapshot(straight, 900)
    assert resumed_at(train(halfway).stderr) == 900, "what is saved then is to be found again"
    assert_same_run(halfway, straight)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_interrupted_and_resumed(
    start: Any, train: Train, straight: Path, tmp_path: Path, number: int
) -> None:
    run_dir = tmp_path / "run"
    arguments = ("run.checkpoint_every=1000000",)
    begun = (run_dir / "snapshots" / "model-00000300.safetensors").exists
    process = caught(lambda: start(run_dir, *arguments), run_dir, begun)
    process.send_signal(number)
    process.send_signal(signal.SIGCONT)
    _, said = process.communicate(timeout=HANGS)
    assert process.returncode == 128 + number
    assert "Traceback" not in said
    stopped = summary(run_dir)
    assert stopped["status"] == "interrupted"
    assert 0 < stopped["iterations"] == newest_checkpoint(run_dir) < summary(straight)["iterations"]
    assert not (run_dir / "model.safetensors").exists()
    assert resumed_at(train(run_dir).stderr) == stopped["iterations"]
    assert_same_run(run_dir, straight)


def test_interrupted_twice_leaves_at_once(start: Any, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    for _ in range(20):
        process = start(run_dir, "solver.max_iterations=300")
        wait_until((run_dir / "checkpoints").exists, process)
        process.send_signal(signal.SIGINT)  # still reading its data: it will not look up so soon
        assert process.stderr is not None
        while "to exit at once" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=HANGS) in (-signal.SIGINT, 128 + signal.SIGINT)
        if not (run_dir / "summary.json").exists():
            return
        shutil.rmtree(run_dir)  # we were slow, and it had left in order before the second one
    raise AssertionError("the second one was never obeyed")


def test_interrupted_when_the_messages_are_not_read(start: Any, tmp_path: Path) -> None:
    """`bigsvm.train ... 2>&1 | tee log`: Ctrl-C ends tee first."""
    run_dir = tmp_path / "run"
    process = start(run_dir, "run.checkpoint_every=1000000", "solver.absolute_tolerance=1e-15")
    wait_until((run_dir / "snapshots" / "model-00000300.safetensors").exists, process)
    process.stdout.close()
    process.stderr.close()
    process.send_signal(signal.SIGINT)
    process.wait(timeout=HANGS)
    assert summary(run_dir)["status"] == "interrupted"
    assert newest_checkpoint(run_dir) > 0


@pytest.mark.core
def test_more_iterations_resume_to_the_same_bits(
    train: Train, straight: Path, halfway: Path
) -> None:
    assert summary(halfway)["status"] == "max_iterations"
    assert final(halfway) == snapshot(straight, 1500)
    said = train(halfway, "solver.max_iterations=2100").stderr
    assert resumed_at(said) == 1500
    assert summary(halfway)["iterations"] == 2100
    assert final(halfway) == snapshot(straight, 2100)
    train(halfway)
    assert_same_run(halfway, straight)


def test_a_finished_run_stays_as_it_is(train: Train, straight: Path, tmp_path: Path) -> None:
    run_dir = Path(shutil.copytree(straight, tmp_path / "run"))
    train(run_dir)
    assert_same_run(run_dir, straight)
    assert reported(run_dir) == reported(straight)


def test_time_limit(train: Train, straight: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    slow = ("run.snapshot_every=1", "run.checkpoint_every=1")
    begin = time.monotonic()
    train(run_dir, *slow, "solver.time_limit=2")
    took = time.monotonic() - begin
    first = summary(run_dir)
    assert first["status"] == "time_limit"
    assert first["true_gap"] is not None
    assert load_model(run_dir / "model.safetensors").about["iteration"] == first["iterations"]
    begin = time.monotonic()
    said = train(run_dir, *slow, "solver.time_limit=0.001").stderr
    with_no_time = time.monotonic() - begin
    assert took < 2 + 3 * with_no_time, "generous: other work may share the machine"
    assert resumed_at(said) == first["iterations"]
    assert summary(run_dir)["iterations"] > first["iterations"]
    train(run_dir)
    assert final(run_dir) == final(straight)


def test_reports_have_the_keys_that_the_design_names(straight: Path) -> None:
    for line in (straight / "metrics.jsonl").read_text().splitlines():
        keys = "iteration pass gap relative_gap objective working support seconds rss"
        assert list(json.loads(line)) == keys.split()
