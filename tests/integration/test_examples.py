"""The examples of the README, run as they stand there."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bigsvm import load_model
from tests.support.trainings import HANGS, REPOSITORY, environment


def examples(heading: str, language: str) -> list[str]:
    """The blocks of code of one section."""
    text = (REPOSITORY / "README.md").read_text()
    section = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)
    assert found, f"no {language} example under {heading}"
    return found


def run_commands(block: str, place: Path, **variables: str) -> str:
    """Run each `python ...` line; what pip installs is there already."""
    said = ""
    for line in block.splitlines():
        words = shlex.split(line, comments=True)
        if words[0] == "pip":
            continue
        assert words[0] == "python", line
        done = subprocess.run(
            [sys.executable, *words[1:]],
            cwd=place, capture_output=True, text=True, env=environment() | variables, timeout=HANGS,
        )  # fmt: skip
        assert done.returncode == 0, f"{line}: {done.stderr}"
        said += done.stdout
    return said


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs/quickstart in it, cut short."""
    place = tmp_path_factory.mktemp("readme")
    config = REPOSITORY / "configs" / "quickstart.yaml"
    short = ["prepare.rows=2000", "prepare.test_rows=500", "train=q.zarr"]
    options = " ".join(f"--set data.{setting}" for setting in short)
    run_commands(
        f"python -m bigsvm.train {config} {options} --set solver.max_iterations=300", place
    )
    return place


def test_models_that_travel(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    (commands,) = examples("Models that travel", "sh")
    assert "max_iterations" in run_commands(commands, place)
    (code,) = examples("Models that travel", "python")
    names: dict = {}
    exec(code, names)
    assert names["label"].shape == names["decision"].shape == (3,)


def test_from_python(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    features = load_model("runs/quickstart/model.safetensors").n_features
    (code,) = examples("From Python", "python")
    exec(code, {"X": np.zeros((3, features))})


def test_as_a_scikit_learn_classifier(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(place)
    (place / "mine.zarr").symlink_to("q.zarr")
    in_memory, stopped, weighted, streamed = examples("As a scikit-learn classifier", "python")
    names: dict = {}
    exec(in_memory, names)
    assert 0.94 < float(capsys.readouterr().out) <= 1
    exec(stopped, names)
    assert "'callback'" in capsys.readouterr().out
    assert names["svc"].status_ == ["converged"] * 10
    exec(weighted, names)
    exec(streamed, names)
    assert 0.7 < float(capsys.readouterr().out) <= 1
    command = "python -m bigsvm.predict mine.safetensors mine.zarr mine.csv"
    assert "accuracy" in run_commands(command, place)


def test_prediction_at_scale(place: Path) -> None:
    (commands,) = examples("Prediction at scale", "sh")
    assert "30,000 rows" in run_commands(commands, place)
    one, other = (place / f"answers.{format}" for format in ("csv", "parquet"))
    assert pd.read_csv(one).equals(pd.read_parquet(other))


def test_your_own_data(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    table = pd.DataFrame(random.normal(size=(400, 6)), columns=list("abcdef"))
    table.head(20).to_csv(tmp_path / "new.csv", index=False)
    table["class"] = np.where(table["a"] + table["b"] ** 2 > 1, "high", "low")
    table.to_csv(tmp_path / "mine.csv.gz", index=False)
    shutil.copytree(REPOSITORY / "configs", tmp_path / "configs")
    (commands,) = examples("Your own data", "sh")
    assert "converged" in run_commands(commands, tmp_path)
    assert set(pd.read_csv(tmp_path / "answers.csv")["label"]) == {"high", "low"}


def test_more_than_two_classes(place: Path) -> None:
    shutil.copytree(REPOSITORY / "configs", place / "configs", dirs_exist_ok=True)
    (commands,) = examples("More than two classes", "sh")
    said = run_commands(commands, place)
    assert "converged" in said and "10 classes" in said
    assert "precision" in said
    assert (place / "runs" / "digits" / "confusion.csv").exists()


def test_weights(place: Path) -> None:
    random = np.random.default_rng(0)
    table = pd.DataFrame(random.normal(size=(300, 3)), columns=["a", "b", "importance"])
    table["importance"] = np.arange(300) % 3
    table["class"] = np.where(table["a"] * table["b"] > 0, "like", "unlike")
    table.to_csv(place / "mine.csv", index=False)
    shutil.copytree(REPOSITORY / "configs", place / "configs", dirs_exist_ok=True)
    (commands,) = examples("Weights", "sh")
    said = run_commands(commands, place)
    assert "converged" in said and "smallest 0, largest 2" in said
    model = load_model(place / "runs" / "weighted" / "model.safetensors")
    assert model.intercept != 0 and model.n_features == 2


def test_tuning(data_dir: Path, tmp_path: Path) -> None:
    (commands,) = examples("Tuning", "sh")
    grid = (REPOSITORY / "configs" / "heart.yaml").read_text()
    assert "count: 11" in grid
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "heart.yaml").write_text(grid.replace("count: 11", "count: 3"))
    said = run_commands(commands, tmp_path, BIGSVM_CACHE=str(tmp_path / "cache"))
    assert "fw, the best 9 of 9:" in said
    assert "converged after" in said
