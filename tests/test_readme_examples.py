"""The examples of the README, run as they stand there."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from trainings import environment

REPOSITORY = Path(__file__).parent.parent


def examples(heading: str, language: str) -> list[str]:
    """The blocks of code of one section."""
    text = (REPOSITORY / "README.md").read_text()
    section = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)
    assert found, f"no {language} example under {heading}"
    return found


def run_commands(block: str, place: Path) -> str:
    """Run each `python ...` line; what pip installs is there already."""
    said = ""
    for line in block.splitlines():
        words = shlex.split(line, comments=True)
        if words[0] == "pip":
            continue
        assert words[0] == "python", line
        done = subprocess.run(
            [sys.executable, *words[1:]],
            cwd=place, capture_output=True, text=True, env=environment(), timeout=120,
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
    from bigsvm import load_model

    monkeypatch.chdir(place)
    features = load_model("runs/quickstart/model.safetensors").n_features
    (code,) = examples("From Python", "python")
    exec(code, {"X": np.zeros((3, features))})


def test_as_a_scikit_learn_classifier(capsys: pytest.CaptureFixture) -> None:
    (code,) = examples("As a scikit-learn classifier", "python")
    exec(code, {})
    assert 0.94 < float(capsys.readouterr().out) <= 1
