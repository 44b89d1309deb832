"""What `run.log_to` writes, read back with the libraries themselves."""

import json
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from bigsvm import cli
from bigsvm.training import trackers
from bigsvm.training.trackers import follow
from tests.support.trainings import Train, final, snapshots, summary

TAGS = {"gap", "relative_gap", "objective", "working", "support", "pass", "seconds", "rss"}


@pytest.fixture(autouse=True)
def file_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")


def reports(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def on_tensorboard(run: Path) -> dict[str, dict[int, float]]:
    events = EventAccumulator(str(run / "tensorboard"), {"scalars": 0}).Reload()
    return {
        tag: {event.step: event.value for event in events.Scalars(tag)}
        for tag in events.Tags()["scalars"]
    }


def in_mlflow(run: Path) -> tuple[Any, dict[str, dict[int, float]]]:
    record = json.loads((run / "mlflow.json").read_text())
    client = MlflowClient(tracking_uri=record["tracking_uri"])
    found = client.get_run(record["run_id"])
    return found, {
        key: {
            value.step: value.value for value in client.get_metric_history(found.info.run_id, key)
        }
        for key in found.data.metrics
    }


def test_a_training_and_its_resumption(train: Train, straight: Path, tmp_path: Path) -> None:
    run, log_to = tmp_path / "run", "run.log_to=[tensorboard,mlflow]"
    train(run, log_to, "solver.max_iterations=700")
    first, _ = in_mlflow(run)
    assert first.info.status == "FINISHED"
    done = train(run, log_to)
    assert "log_to" not in done.stderr
    assert final(run) == final(straight) and snapshots(run) == snapshots(straight)
    expected = {report["iteration"]: report["relative_gap"] for report in reports(run)}
    written = on_tensorboard(run)
    assert written.keys() == TAGS
    assert written["relative_gap"] == pytest.approx(expected, rel=1e-6)
    ended, metrics = in_mlflow(run)
    assert ended.info.run_id == first.info.run_id
    assert metrics.keys() >= TAGS and expected.keys() <= metrics["relative_gap"].keys()
    assert metrics["relative_gap"][max(expected)] == expected[max(expected)]
    assert ended.data.params["model.kernel.sigma"] == "1.0"
    assert ended.data.tags["status"] == "converged"
    assert ended.data.metrics["summary/n_support"] == summary(run)["n_support"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "config.yaml").write_text("model: {C: 10.0}\n")
    lines = [json.dumps({"iteration": k, "gap": 1 / k, "seconds": 0.1 * k}) for k in (1, 2)]
    (tmp_path / "metrics.jsonl").write_text("\n".join([*lines, '{"iteration": 3, "g']))
    return tmp_path


def test_reports_are_copied_as_they_come(run: Path) -> None:
    def ended(_: float) -> bool:
        with (run / "metrics.jsonl").open("a") as file:
            file.write('ap": 0.25}\n')
        scores = {"iteration": 3, "auc": 0.75, "final": False, "rows": "r"}
        (run / "validation.jsonl").write_text(json.dumps(scores) + "\n")
        return True

    follow(run, ["tensorboard", "mlflow"], ended)
    expected = {"gap": {1: 1.0, 2: 0.5, 3: 0.25}, "validation/auc": {3: 0.75}}
    written, (ended_run, metrics) = on_tensorboard(run), in_mlflow(run)
    for tag, values in expected.items():
        assert written[tag] == metrics[tag] == values
    assert ended_run.info.status == "KILLED"  # no summary: its trainer was killed


def test_a_tracker_that_fails_is_dropped_with_one_line(
    run: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    follow(run, ["mlflow", "tensorboard"], lambda _: True)
    said = [line for line in capfd.readouterr().err.splitlines() if "run.log_to" in line]
    assert len(said) == 1 and said[0].startswith("warning: run.log_to: mlflow stopped: ")
    assert on_tensorboard(run)["gap"] == {1: 1.0, 2: 0.5}


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_a_library_that_is_missing_is_named_before_anything_begins(
    name: str,
    config: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    monkeypatch.setattr(trackers, "find_spec", lambda asked: None)
    arguments = ["train", str(config), "--run-dir", str(tmp_path / "run")]
    assert cli.main([*arguments, "--set", f"run.log_to=[{name}]"]) == 2
    assert capsys.readouterr().err == (
        f"error: run.log_to = {name}: {name} is not installed; pip install 'bigsvm[{name}]'\n"
    )
    assert not (tmp_path / "run").exists()
    assert cli.main([*arguments, "--set", "run.log_to=[wandb]"]) == 2
    assert "run.log_to" in capsys.readouterr().err
