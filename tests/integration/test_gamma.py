"""`gamma: scale` and `auto` in a config are scikit-learn's, and a run resumes with them."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from bigsvm import BigSVC, cli, load_model
from tests.support.problems import random_problem


@pytest.mark.parametrize("gamma", ["scale", "auto"])
def test_it_is_that_of_the_estimator(gamma: str, tmp_path: Path) -> None:
    x, y = random_problem(np.random.default_rng(0), 300, 4)
    x = (3 * x + 1).astype(np.float32)
    with h5py.File(tmp_path / "train.h5", "w") as file:
        file.create_dataset("X", data=x, chunks=(64, 4))
        file["y"] = y
    config = {
        "data": {"train": str(tmp_path / "train.h5")},
        "model": {"C": 2.0, "kernel": {"name": "rbf", "gamma": gamma}},
        "solver": {"max_iterations": 50},
    }
    (tmp_path / "c.yaml").write_text(json.dumps(config))
    train = ["train", str(tmp_path / "c.yaml"), "--run-dir", str(tmp_path / "run")]
    assert cli.main(train) == 0
    assert cli.main([*train, "--set", "solver.max_iterations=60"]) == 0  # resumed: the same run
    model = load_model(tmp_path / "run" / "model.safetensors")
    expected = 1 / (4 * x.var()) if gamma == "scale" else 1 / 4
    assert model.kernel["gamma"] == pytest.approx(expected, rel=1e-5)
    assert model.kernel["gamma"] == BigSVC(C=2.0, gamma=gamma).fit(x, y).to_model().kernel["gamma"]


def test_another_word_is_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {"data": {"train": "x.h5"}, "model": {"kernel": {"name": "rbf", "gamma": "scaled"}}}
    (tmp_path / "c.yaml").write_text(json.dumps(config))
    assert cli.main(["train", str(tmp_path / "c.yaml")]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert "model.kernel.gamma" in error
    assert "scale" in error
