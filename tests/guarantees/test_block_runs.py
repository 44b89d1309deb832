"""The guarantees, for the block schedule."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.trainings import (
    HANGS,
    Train,
    assert_same_run,
    command,
    environment,
    final,
    killed,
    newest_checkpoint,
    resumed_at,
    snapshot,
    summary,
)

BLOCK = ("solver.schedule=block", "solver.hot_set=32")


@pytest.fixture(scope="module")
def straight_block(train: Train, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nothing disturbs."""
    run_dir = tmp_path_factory.mktemp("runs") / "straight"
    train(run_dir, *BLOCK)
    assert summary(run_dir)["status"] == "converged"
    assert summary(run_dir)["passes"] > 20
    assert summary(run_dir)["iterations"] > 2400
    return run_dir


@pytest.mark.parametrize("form", ["chunks of 8192", "chunks of 500"])
def test_same_bits_whatever_the_form_of_the_store(
    train: Train, straight_block: Path, stores: dict[str, Path], tmp_path: Path, form: str
) -> None:
    train(tmp_path / "run", *BLOCK, f"data.train={stores[form]}")
    assert_same_run(tmp_path / "run", straight_block)


def test_same_bits_with_two_threads(config: Path, straight_block: Path, tmp_path: Path) -> None:
    arguments = command(config, tmp_path / "run", *BLOCK, "solver.threads=2")
    subprocess.run(arguments, env=environment(threads=2), check=True, timeout=HANGS)
    assert_same_run(tmp_path / "run", straight_block)


def test_killed_at_any_moment(
    start: Any, train: Train, straight_block: Path, tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"
    killed(start, run_dir, *BLOCK, times=4)
    assert newest_checkpoint(run_dir) > 0
    train(run_dir, *BLOCK)
    assert_same_run(run_dir, straight_block)


def test_more_iterations_resume_to_the_same_bits(
    train: Train, straight_block: Path, tmp_path: Path
) -> None:
    """Stopped in the middle of a subproblem, it resumes from the last cell that it solved."""
    run_dir = tmp_path / "run"
    train(run_dir, *BLOCK, "solver.max_iterations=1500")
    ended = summary(run_dir)
    assert (ended["status"], ended["iterations"]) == ("max_iterations", 1500)
    assert ended["drift"] < 1e-12
    assert final(run_dir) == snapshot(straight_block, 1500)
    assert resumed_at(train(run_dir, *BLOCK).stderr) < 1500
    assert_same_run(run_dir, straight_block)


def test_all_in_one_hot_set_is_saved_on_the_way(train: Train, tmp_path: Path) -> None:
    """Without any pass: as often as there are patterns."""
    whole = ("solver.schedule=block", "solver.hot_set=3072", "solver.absolute_tolerance=1e-6")
    train(tmp_path / "straight", *whole)
    train(tmp_path / "run", *whole, "solver.max_iterations=5000")
    saved = newest_checkpoint(tmp_path / "run")
    assert 0 < saved < 5000
    assert resumed_at(train(tmp_path / "run", *whole).stderr) == saved
    assert_same_run(tmp_path / "run", tmp_path / "straight")


def test_another_schedule_or_width_is_refused(train: Train, tmp_path: Path) -> None:
    train(tmp_path / "run", *BLOCK, "solver.max_iterations=100")
    for other in (("solver.schedule=exact",), (BLOCK[0], "solver.hot_set=64")):
        assert "was" in train(tmp_path / "run", *other, code=2).stderr
