"""Validation rows: scores at every snapshot, the best model, early stopping; also after kill -9."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from bigsvm import cli, load_model
from bigsvm.stores.store import open_dataset
from bigsvm.training.validation import held_out_rows
from tests.support.real_table import command, magic_table
from tests.support.trainings import environment, wait_until

STOP = {"metric": "auc", "patience": 3}


@pytest.fixture(scope="module")
def folder(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stores of a real table, and a run that stopped early by rows it held out."""
    folder = tmp_path_factory.mktemp("validation")
    table = magic_table(data_dir, 3000)
    options = ["--label-column", "class", "--scaling", "standard", "--quiet"]
    table[:2000].to_csv(folder / "t.csv", index=False)
    table[2000:].to_csv(folder / "v.csv", index=False)
    command("prepare", folder / "t.csv", folder / "t.zarr", *options)
    command("prepare", folder / "v.csv", folder / "v.zarr", "--like", folder / "t.zarr", "--quiet")
    write(folder, {"validation_fraction": 0.25})
    command("train", folder / "c.yaml", "--run-dir", folder / "run")
    return folder


def write(folder: Path, data: dict, **run: object) -> Path:
    values = {
        "data": {"train": str(folder / "t.zarr"), **data},
        "model": {"C": 1000, "kernel": {"name": "rbf", "sigma": 1}},
        "solver": {"threads": 1, "tolerance": 1e-4},
        "run": {"snapshot_every": 100, "checkpoint_every": 70, "stop_early": STOP, **run},
    }
    (folder / "c.yaml").write_text(yaml.safe_dump(values))
    return folder / "c.yaml"


def lines_of(run: Path) -> list[dict]:
    found = [json.loads(text) for text in (run / "validation.jsonl").read_text().splitlines()]
    return [{key: line[key] for key in line if key != "seconds"} for line in found]


def summary(run: Path) -> dict:
    return json.loads((run / "summary.json").read_text())


def test_scores_are_those_of_rows_that_took_no_part(folder: Path) -> None:
    with open_dataset(folder / "t.zarr") as data:
        X, codes, classes = data.read(0, data.n), data.labels(), data.classes
    held = held_out_rows(codes, classes, 0.25, 0)
    shares = [np.mean(codes[held] == code) for code in (-1, 1)]
    np.testing.assert_allclose(shares, [np.mean(codes == code) for code in (-1, 1)], atol=0.001)
    lines = lines_of(folder / "run")
    snapshots = sorted((folder / "run/snapshots").iterdir())
    assert [line["iteration"] for line in lines] == [
        int(path.stem.removeprefix("model-")) for path in snapshots
    ]
    for path, line in zip(snapshots, lines, strict=True):
        model = load_model(path)
        assert not np.isin(model.support_index, held).any()
        f = model.decision_function(X[held], scaled=True)
        assert line["auc"] == pytest.approx(roc_auc_score(codes[held], f))
        expected = balanced_accuracy_score(codes[held], np.where(f >= 0, 1, -1))
        assert line["balanced_accuracy"] == pytest.approx(expected)
        assert line["n_support"] == model.n_support


def test_it_stops_at_the_first_snapshot_that_is_patience_after_the_best(folder: Path) -> None:
    scores = [line["auc"] for line in lines_of(folder / "run")]
    assert scores.index(max(scores)) == len(scores) - 1 - 3, scores
    found = summary(folder / "run")
    assert found["status"] == "stopped_early" and found["iterations"] == 100 * len(scores)
    best = found["validation"]["best"]
    assert best["auc"] == max(scores) and found["validation"]["rows"] == 500
    snapshot = folder / f"run/snapshots/model-{best['iteration']:08d}.safetensors"
    assert (folder / "run/best.safetensors").read_bytes() == snapshot.read_bytes()
    last = load_model(folder / "run/model.safetensors").about["iteration"]
    assert last == found["iterations"] > best["iteration"]


def test_started_again_it_says_so_and_a_larger_patience_continues(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    run = tmp_path / "run"
    path = write(folder, {"validation_fraction": 0.25})
    command("train", path, "--run-dir", run)
    assert "stopped early: the validation AUC" in capsys.readouterr().out
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    command("train", path, "--run-dir", run, "--set", "solver.max_iterations=5000")
    assert "already stopped_early" in capsys.readouterr().out
    assert before == {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    more = ["--set", "run.stop_early.patience=5"]
    command("train", path, "--run-dir", run, *more)
    command("train", path, "--run-dir", tmp_path / "at-once", *more)
    assert lines_of(run) == lines_of(tmp_path / "at-once")
    assert len(lines_of(run)) > len(lines_of(folder / "run"))


def test_killed_it_resumes_to_the_same_decision(folder: Path, tmp_path: Path) -> None:
    path, run = write(folder, {"validation_fraction": 0.25}), tmp_path / "run"
    arguments = [sys.executable, "-m", "bigsvm.train", str(path), "--run-dir", str(run)]
    for lines in (1, 2):

        def written(lines: int = lines) -> bool:
            file = run / "validation.jsonl"
            return file.exists() and file.read_bytes().count(b"\n") >= lines

        process = subprocess.Popen(arguments, env=environment(), stderr=subprocess.PIPE, text=True)
        wait_until(written, process)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    (run / "best.safetensors").unlink()  # as if killed before it was written
    with (run / "validation.jsonl").open("a") as file:
        file.write('{"iteration": 300, "auc": 0.')  # and in the middle of a line
    command("train", path, "--run-dir", run)
    assert lines_of(run) == lines_of(folder / "run")
    assert summary(run)["validation"] == summary(folder / "run")["validation"]
    for name in ("best.safetensors", "model.safetensors"):
        assert (run / name).read_bytes() == (folder / "run" / name).read_bytes()


def test_scores_that_were_lost_are_computed_again(folder: Path, tmp_path: Path) -> None:
    path, run = write(folder, {"validation_fraction": 0.25}), tmp_path / "run"
    command("train", path, "--run-dir", run, "--set", "solver.max_iterations=250")
    assert [line["final"] for line in lines_of(run)] == [False, False, True]
    (run / "validation.jsonl").unlink()
    command("train", path, "--run-dir", run)
    assert lines_of(run) == lines_of(folder / "run")


def test_a_store_without_early_stopping(folder: Path, tmp_path: Path) -> None:
    path, run = write(folder, {"validation": str(folder / "v.zarr")}), tmp_path / "run"
    arguments = ["--set", "run.stop_early=null", "--set", "solver.max_iterations=350"]
    command("train", path, "--run-dir", run, *arguments)
    lines = lines_of(run)
    assert [line["iteration"] for line in lines] == [100, 200, 300, 350]
    with open_dataset(folder / "v.zarr", "test") as data:
        f = load_model(run / "model.safetensors").decision_function(
            data.read(0, data.n), scaled=True
        )
        assert lines[-1]["auc"] == pytest.approx(roc_auc_score(data.labels(), f))
    best = max(lines, key=lambda line: line["auc"])
    assert load_model(run / "best.safetensors").about["iteration"] == best["iteration"]
    # Added to a run that had none, all its snapshots are scored; the model is the same.
    plain = tmp_path / "plain"
    values = yaml.safe_load(path.read_text())
    del values["data"]["validation"], values["run"]["stop_early"]
    (tmp_path / "plain.yaml").write_text(yaml.safe_dump(values))
    command("train", tmp_path / "plain.yaml", "--run-dir", plain, *arguments[2:])
    assert not (plain / "validation.jsonl").exists()
    model = (plain / "model.safetensors").read_bytes()
    assert model == (run / "model.safetensors").read_bytes()
    command("train", path, "--run-dir", plain, *arguments[:3], "solver.max_iterations=400")
    assert lines_of(plain)[:3] == lines[:3]


def test_three_classes(data_dir: Path, tmp_path: Path) -> None:
    command("prepare", data_dir / "iris.data", tmp_path / "t.zarr", "--quiet")
    path = write(tmp_path, {"validation_fraction": 0.3}, snapshot_every=20)
    command("train", path, "--run-dir", tmp_path / "run", "--set", "run.stop_early.patience=2")
    lines = lines_of(tmp_path / "run")
    assert len(lines) > 2 and all(0.8 < line["auc"] <= 1 for line in lines[1:])
    assert summary(tmp_path / "run")["status"] in ("stopped_early", "converged")


def test_calibrate_on_validation(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "c.safetensors"
    command("calibrate", folder / "run", "--on", "validation", "--out", out)
    calibration = load_model(out).calibration
    assert calibration is not None and calibration.about["rows"] == 500
    command("calibrate", folder / "run/best.safetensors", "--on", "validation", "--out", out)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"validation": "v.zarr", "validation_fraction": 0.2}, "not both"),
        ({}, "run.stop_early needs rows to judge by"),
        ({"validation_fraction": 1.0}, "data.validation_fraction = 1"),
        ({"validation_fraction": 0.0001}, "would hold out 0 of the"),
        ({"validation": "none.zarr"}, "none.zarr"),
        ({"validation": "one.zarr"}, "has no row of class 'g'"),
    ],
)
def test_mistakes_are_one_line(
    folder: Path, change: dict, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    capsys: pytest.CaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.chdir(folder)
    if change.get("validation") == "one.zarr":
        table = (folder / "v.csv").read_text().splitlines()
        (tmp_path / "one.csv").write_text(
            "\n".join([table[0], *(r for r in table if r[-1] == "h")])
        )
        command("prepare", tmp_path / "one.csv", "one.zarr", "--like", "t.zarr", "--quiet")
    assert cli.main(["train", str(write(folder, change)), "--run-dir", str(tmp_path / "r")]) == 2
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1 and not (tmp_path / "r").exists()


def test_other_rows_held_out_are_another_run(folder: Path, capsys: pytest.CaptureFixture) -> None:
    path = write(folder, {"validation_fraction": 0.3})
    assert cli.main(["train", str(path), "--run-dir", str(folder / "run")]) == 2
    assert "data.validation_fraction was 0.25 and is now 0.3" in capsys.readouterr().err
    command("calibrate", folder / "run", "--on", "validation", "--out", folder / "c.safetensors")
    assert cli.main(["calibrate", str(folder / "c.safetensors"), "--on", "validation"]) == 2
    assert "is no run directory" in capsys.readouterr().err
