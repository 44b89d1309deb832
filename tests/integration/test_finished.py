"""A finished run that is started again says so, and changes nothing."""

import shutil
from pathlib import Path

import pytest

from bigsvm import load_model
from tests.support.trainings import Train, everything, final, reported, summary


@pytest.fixture
def converged(straight: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(straight, tmp_path / "run"))


@pytest.mark.parametrize("change", [(), ("solver.max_iterations=100",), ("run.snapshot_every=7",)])
def test_a_converged_run_stays_as_it_is(train: Train, converged: Path, change: tuple) -> None:
    before = everything(converged)
    said = train(converged, *change).stdout
    assert said.startswith("already converged after") and "solver.tolerance" in said
    assert everything(converged) == before, "summary, model, train_seconds: all as before"


def test_a_smaller_tolerance_continues(train: Train, converged: Path) -> None:
    iterations = summary(converged)["iterations"]
    said = train(converged, "solver.absolute_tolerance=1e-4").stdout
    assert "already" not in said
    assert summary(converged)["status"] == "converged"
    assert summary(converged)["iterations"] > iterations
    assert summary(converged)["true_gap"] <= 1e-4


def test_a_run_at_its_limit_stays_as_it_is(train: Train, halfway: Path) -> None:
    before = everything(halfway)
    said = train(halfway, "solver.max_iterations=1500").stdout
    assert said.startswith("already max_iterations after 1,500") and "max_iterations" in said
    assert everything(halfway) == before
    train(halfway, "solver.max_iterations=700")
    assert everything(halfway) == before, "what is done is not undone"


def test_fresh_begins_anew_all_the_same(train: Train, converged: Path, straight: Path) -> None:
    assert "already" not in train(converged, "--fresh").stdout
    assert final(converged) == final(straight) and reported(converged)


@pytest.mark.parametrize("lost", ["model.safetensors", "summary.json"])
def test_what_is_missing_is_made_again(train: Train, converged: Path, lost: str) -> None:
    expected = final(converged)
    (converged / lost).unlink()
    assert "already" not in train(converged).stdout
    assert final(converged) == expected
    assert summary(converged)["status"] == "converged"


def test_a_torn_summary_is_no_end(train: Train, converged: Path) -> None:
    (converged / "summary.json").write_text('{"status": "conver')
    assert "already" not in train(converged).stdout
    assert summary(converged)["status"] == "converged"
    assert load_model(converged / "model.safetensors").about["relative_gap"] >= 0
