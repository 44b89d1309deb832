"""Guarantee 3: runs are not mixed up, nor lost by a mistake or a full disk."""

import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bigsvm import load_model
from tests.support.trainings import (
    HANGS,
    Train,
    assert_same_run,
    caught,
    command,
    environment,
    everything,
    newest_checkpoint,
    one_line,
    reported,
    resumed_at,
    snapshots,
    summary,
)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("model.C=11", "C was 10.0 and is now 11.0"),
        ("model.kernel.sigma=2", "model.kernel.sigma was 1.0 and is now 2.0"),
        ("model.algorithm=fw", "algorithm was 'mfw' and is now 'fw'"),
        ("other data", "data.train was"),
    ],
)
def test_another_model_or_other_data_is_refused(
    train: Train, halfway: Path, stores: dict[str, Path], change: str, named: str
) -> None:
    before = everything(halfway)
    if change in stores:
        change = f"data.train={stores[change]}"
    refusal = one_line(train(halfway, change, code=2))
    assert named in refusal
    assert str(halfway) in refusal
    assert everything(halfway) == before


def test_snapshots_of_two_models_never_lie_together(
    start: Any, config: Path, tmp_path: Path
) -> None:
    """Even where the first run was killed before its first checkpoint."""
    run_dir = tmp_path / "run"
    settings = ("run.checkpoint_every=1000000", "run.snapshot_every=50")
    begun = (run_dir / "snapshots" / "model-00000300.safetensors").exists
    process = caught(lambda: start(run_dir, *settings), run_dir, begun)
    process.kill()
    process.communicate()
    arguments = ("model.C=2", "solver.max_iterations=100", "run.snapshot_every=50")
    done = subprocess.run(
        command(config, run_dir, *arguments), capture_output=True, env=environment()
    )
    assert done.returncode in (0, 2), done.stderr
    strengths = {load_model(path).about["C"] for path in (run_dir / "snapshots").iterdir()}
    assert strengths == ({2.0} if done.returncode == 0 else {10.0})


def test_two_trainers_never_share_a_run_directory(
    start: Any, train: Train, straight: Path, tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"
    process = caught(lambda: start(run_dir), run_dir, lambda: newest_checkpoint(run_dir) > 0)
    before = everything(run_dir)
    for arguments in ((), ("--fresh",)):
        assert "another trainer uses" in one_line(train(run_dir, *arguments, code=2))
    assert everything(run_dir) == before
    process.send_signal(signal.SIGCONT)
    _, said = process.communicate(timeout=HANGS)
    assert process.returncode == 0, said
    assert_same_run(run_dir, straight)


def test_fresh_begins_anew(train: Train, halfway: Path) -> None:
    (halfway / "notes.txt").write_text("mine")
    train(halfway, "--fresh", "model.C=3", "solver.max_iterations=300")
    assert summary(halfway)["iterations"] == 300
    assert list(snapshots(halfway)) == ["model-00000300.safetensors"]
    assert max(reported(halfway)) == 300
    assert load_model(halfway / "model.safetensors").about["C"] == 3.0
    assert (halfway / "notes.txt").read_text() == "mine"


def test_fresh_forgets_nothing_where_it_cannot_begin(train: Train, halfway: Path) -> None:
    before = everything(halfway)
    for wrong in ("data.train=/no/such.zarr", "solver.memory_limit=1MiB"):
        one_line(train(halfway, "--fresh", wrong, code=2))
        assert everything(halfway) == before, wrong


def test_a_mistake_leaves_no_run_directory(train: Train, tmp_path: Path) -> None:
    assert "/no/such.zarr" in one_line(train(tmp_path / "r", "data.train=/no/such.zarr", code=2))
    assert not (tmp_path / "r").exists()


def remount(folder: Path, option: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{option}", str(folder)], check=True)


def test_a_full_disk(train: Train, straight: Path, small_disk: Path) -> None:
    run_dir = small_disk / "run"
    for _ in range(2):  # the second time it is full from the beginning
        failed = train(run_dir, code=1)
        message = failed.stderr.strip().splitlines()[-1]
        assert "No space left on device" in message
        assert str(run_dir) in message, "it names what could not be written"
        assert not (run_dir / "summary.json").exists()
    remount(small_disk, "size=20m")
    assert resumed_at(train(run_dir).stderr) > 0
    assert_same_run(run_dir, straight)


def test_a_read_only_run_directory(train: Train, small_disk: Path) -> None:
    (small_disk / "run").mkdir()
    remount(small_disk, "ro")
    for run_dir in (small_disk / "run", small_disk / "other"):
        assert str(run_dir) in one_line(train(run_dir, code=2))
