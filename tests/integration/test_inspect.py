"""`inspect` says what is inside a model, a run or a store, and only reads."""

import json
import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from bigsvm.core.errors import UserError
from bigsvm.core.yaml_dialect import read_yaml
from bigsvm.inspect import main
from bigsvm.models.model import load_model
from bigsvm.training.run_dir import RunDir
from tests.support import small_run
from tests.support.small_run import make_model, make_store
from tests.support.trainings import summary
from tests.support.tunings import config_for, made_store, tune


def facts(path: object, capsys: pytest.CaptureFixture) -> dict[str, Any]:
    assert main([str(path), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def text(path: object, capsys: pytest.CaptureFixture) -> str:
    assert main([str(path)]) == 0
    return str(capsys.readouterr().out)


def test_a_model(straight: Path, stores: dict, capsys: pytest.CaptureFixture) -> None:
    found = facts(straight / "model.safetensors", capsys)
    model = load_model(straight / "model.safetensors")
    assert found["kernel"] == {"name": "rbf", "gamma": 0.5, "sigma": 1.0}
    assert (found["C"], found["algorithm"]) == (10, "mfw")
    assert found["support_vectors"] == model.n_support == sum(found["support_by_class"].values())
    assert found["support_by_class"]["1"] == np.count_nonzero(model.dual_coef > 0)
    assert found["scaling"]["offset"] == model.scaling.offset.tolist()
    assert found["training"]["status"] == "converged"
    assert found["training"]["iteration"] == summary(straight)["iterations"]
    assert found["source"] == "synthetic"
    assert found["fingerprint"] == facts(stores["chunks of 500"], capsys)["train"]["fingerprint"]
    snapshot = min((straight / "snapshots").iterdir())
    assert facts(snapshot, capsys)["training"]["status"] == "a model on the way"
    shown = text(straight / "model.safetensors", capsys)
    for part in ("rbf", "sigma 1", "converged", "synthetic", "standard", f"{model.n_support:,}"):
        assert part in shown


def test_a_run(straight: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    found = facts(straight, capsys)
    assert found["status"] == "converged"
    assert found["summary"]["iterations"] == found["last_metrics"]["iteration"]
    assert found["model"]["C"] == 10 and found["solver"]["schedule"] == "exact"
    there = sorted((straight / "snapshots").glob("model-*"))
    assert found["snapshots"]["count"] == len(there) == len(found["snapshots"]["iterations"])
    assert found["checkpoints"]["iterations"][-1] == found["summary"]["iterations"]
    assert "converged" in text(straight, capsys)
    # Cut off in the middle, a line of metrics torn, the config no YAML: still no traceback.
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "metrics.jsonl").write_text('{"iteration": 5, "gap": 0.5}\n{"iteration": 6, "ga')
    (tmp_path / "config.yaml").write_text("a: [")
    found = facts(tmp_path, capsys)
    assert found["status"] == "cut off"
    with RunDir(tmp_path).locked():
        assert facts(tmp_path, capsys)["status"] == "running"
    assert found["last_metrics"] == {"iteration": 5, "gap": 0.5}
    assert found["snapshots"]["count"] == 0


def test_a_tuning(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    config = config_for(made_store(tmp_path))
    tune(config, tmp_path / "tuned", "tune.folds=2", "data.validation_fraction=0.25")
    capsys.readouterr()
    found = facts(tmp_path / "tuned", capsys)
    assert (found["status"], found["grid_points"]) == ("finished", 12)
    assert found["finished_folds"]["count"] == 4 and found["tune"]["folds"] == 2
    best = read_yaml(tmp_path / "tuned" / "best.yaml")["model"]
    assert found["best_model"]["C"] == best["C"]
    size = found["finished_folds"]["bytes"] / 1024
    shown = text(tmp_path / "tuned", capsys)
    assert f"count 4, size {size:.3g} KiB" in shown and "validation fraction 0.25" in shown
    (tmp_path / "tuned" / "best.yaml").unlink()
    assert facts(tmp_path / "tuned", capsys)["status"] == "cut off"


def test_sizes_are_shown_for_people(straight: Path, capsys: pytest.CaptureFixture) -> None:
    shown = text(straight, capsys)
    assert "memory limit 2 GiB" in shown
    assert re.search(r"checkpoints +count 2, iterations .*, size [\d.]+ KiB", shown)
    assert re.search(r"peak rss +[\d.]+ MiB|peak rss [\d.]+ MiB", shown)


def test_numbers_of_a_config_are_those_that_train_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "config.yaml").write_text("solver: {tolerance: 1e-5}")
    assert facts(tmp_path, capsys)["solver"] == {"tolerance": 1e-5}


@pytest.mark.parametrize("name", ["s.zarr", "s.h5"])
def test_a_store(tmp_path: Path, name: str, capsys: pytest.CaptureFixture) -> None:
    store = make_store(tmp_path / name, rows=300)
    found = facts(store, capsys)
    assert found["format"] == ("HDF5" if name == "s.h5" else "Zarr v3")
    assert found["train"]["rows"] == 200 and found["test"]["rows"] == 100
    assert found["train"]["features"] == 5 and found["train"]["chunk_rows"] == 64
    assert sum(found["test"]["classes"].values()) == 100
    assert found["train"]["source"] == "synthetic" and len(found["train"]["fingerprint"]) == 64
    inner = facts(store / "test", capsys)
    assert {key: inner[key] for key in found["test"]} == found["test"]
    assert found["train"]["fingerprint"] in text(store, capsys)


def test_arrays_of_the_users_own(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    with h5py.File(tmp_path / "own.h5", "w") as file:
        file["features"], file["labels"] = np.ones((4, 3)), np.arange(4)
    found = facts(tmp_path / "own.h5", capsys)
    assert found["arrays"]["features"] == {"shape": [4, 3], "type": "float64"}
    with h5py.File(tmp_path / "usual.h5", "w") as file:
        file["X"] = np.ones((4, 3))
    found = facts(tmp_path / "usual.h5", capsys)
    assert found["rows"] == 4 and found["classes"] is None and found["fingerprint"] is None


def test_what_a_stranger_wrote_does_not_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    store = make_store(tmp_path / "s.zarr", rows=300)
    about = {"source": "\x1b[2J evil", "\x1b[31m": {"\x1b": 1}, "iteration": "none"}
    model = make_model(store, 1, 9, about=about)
    model.save(tmp_path / "m.safetensors")
    assert "\x1b" not in text(tmp_path / "m.safetensors", capsys)


def test_mistakes_are_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file.txt").write_text("hello")
    expected = {"none": "no such model", "folder": "neither", "file.txt": "not a file of bigsvm"}
    for name, words in expected.items():
        with pytest.raises(UserError, match=words) as mistake:
            main([str(tmp_path / name)])
        assert "\n" not in str(mistake.value)
    code, out, err = small_run.run("bigsvm", "inspect", tmp_path / "none")
    assert code == 2 and out == "" and err.startswith("error: ") and err.count("\n") == 1
