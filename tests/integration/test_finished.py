"""A finished run that is started again says so, and changes nothing."""

import re
import shutil
from pathlib import Path

import pytest

from bigsvm import cli, load_model
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


def test_a_limit_within_a_subproblem_is_an_end_too(
    config: Path, stores: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """The newest checkpoint is older than the model: the block schedule saves between passes."""
    run, asked = tmp_path / "run", ["--set", "solver.schedule=block"]
    asked += ["--set", "solver.hot_set=200", "--run-dir", str(run), "--set"]
    assert cli.main(["train", str(config), *asked, "solver.max_iterations=900"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    resumes = re.search(r"a larger one resumes from iteration ([\d,]+): ", last)
    assert resumes and int(resumes[1].replace(",", "")) < 900
    before = everything(run)
    for limit in (900, 500):
        assert cli.main(["train", str(config), *asked, f"solver.max_iterations={limit}"]) == 0
        assert capsys.readouterr().out.startswith("already max_iterations after 900 iterations")
    assert everything(run) == before, "train_seconds, too"
    # As a kill would leave it after the limit was raised: the summary is older than the checkpoint.
    ended = (run / "summary.json").read_bytes()
    assert cli.main(["train", str(config), *asked, "solver.max_iterations=1800"]) == 0
    (run / "summary.json").write_bytes(ended)
    assert cli.main(["train", str(config), *asked, "solver.max_iterations=1800"]) == 0
    assert summary(run)["iterations"] == 1800


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


def test_the_last_report_is_made_where_a_kill_came_before_it(
    train: Train, converged: Path, straight: Path
) -> None:
    """The newest checkpoint is of the last iteration, metrics.jsonl does not tell of it yet."""
    lines = (converged / "metrics.jsonl").read_text().splitlines(keepends=True)
    (converged / "metrics.jsonl").write_text("".join(lines[:-1]))
    (converged / "summary.json").unlink()
    train(converged)
    assert reported(converged)[-1] == reported(straight)[-1]
    train(converged, "solver.max_iterations=1000000")
    assert reported(converged)[-1] == reported(straight)[-1], "once"


def test_a_test_set_that_comes_later_is_scored(
    train: Train, converged: Path, stores: dict[str, Path]
) -> None:
    model, before = final(converged), summary(converged)
    said = train(converged, f"data.test={stores['chunks of 8192']}/train").stdout
    assert said.startswith("already converged after")
    assert summary(converged)["accuracy"] > 0.5
    assert before.items() <= summary(converged).items() and final(converged) == model
