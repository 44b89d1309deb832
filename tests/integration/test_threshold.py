"""The threshold of a decision: fitted to the training rows, kept in the model and its exports."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from bigsvm import cli, load_model
from bigsvm.core.errors import UserError
from bigsvm.models.model import Model
from bigsvm.stores.store import open_dataset
from bigsvm.training.threshold import fit_threshold
from tests.support.real_table import command, magic_table
from tests.support.trainings import REPOSITORY, environment


def score(above: np.ndarray, below: np.ndarray, t: float, rule: str) -> float:
    found, rejected = np.mean(above >= t), np.mean(below < t)
    if rule == "balanced":
        return (found + rejected) / 2
    return (found * len(above) + rejected * len(below)) / (len(above) + len(below))


@pytest.mark.parametrize("rule", ["balanced", "accuracy"])
@pytest.mark.parametrize("seed", range(20))
def test_no_threshold_is_better(rule: str, seed: int) -> None:
    draw = np.random.default_rng(seed)
    above = np.round(draw.normal(0.5, 1, draw.integers(1, 60)), 1)  # with ties
    below = np.round(draw.normal(-0.5, 1, draw.integers(1, 60)), 1)
    shift = draw.normal()
    found = fit_threshold(above + shift, below + shift, rule)
    best = score(above + shift, below + shift, found, rule)
    values = np.unique(np.concatenate([above, below])) + shift
    tried = [values[0] - 1, *values, *(values[1:] + values[:-1]) / 2, values[-1] + 1, 0.0]
    assert best == pytest.approx(max(score(above + shift, below + shift, t, rule) for t in tried))
    if score(above + shift, below + shift, 0.0, rule) == best:
        assert found == 0.0, "0 where 0 is as good as any"


def test_thresholds_at_the_edges() -> None:
    apart = fit_threshold(np.array([5.0, 6.0]), np.array([1.0, 3.0]), "accuracy")
    assert apart == 4.0, "halfway between the classes"
    assert fit_threshold(np.array([1.0]), np.array([]), "accuracy") == 0.0
    rare = fit_threshold(np.array([-2.0]), np.arange(1.0, 9.0), "accuracy")
    assert rare > 8.0, "always no"


@pytest.fixture(scope="module")
def folder(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of a real table in which one class in six is positive."""
    folder = tmp_path_factory.mktemp("threshold")
    table = magic_table(data_dir, 6000)
    rare = table[table["class"] == "h"][:250]
    rows = table[table["class"] == "g"][:1250]
    pd.concat([rows, rare]).sample(frac=1, random_state=0).to_csv(folder / "t.csv", index=False)
    options = ["--scaling", "standard", "--test-fraction", 0.3, "--quiet"]
    command("prepare", folder / "t.csv", folder / "t.zarr", *options)
    for rule in ("zero", "balanced", "accuracy"):
        command("train", config(folder, rule), "--run-dir", folder / rule)
    return folder


def config(folder: Path, rule: str, **model: object) -> Path:
    path = folder / f"{rule}.yaml"
    values = {
        "data": {"train": str(folder / "t.zarr"), "test": str(folder / "t.zarr/test")},
        "model": {"C": 10, "kernel": {"name": "rbf", "sigma": 2}, "threshold": rule, **model},
        "solver": {"threads": 1},
        "run": {"snapshot_every": 50},
    }
    path.write_text(yaml.safe_dump(values))
    return path


def model_of(folder: Path, rule: str) -> Model:
    return load_model(folder / rule / "model.safetensors")


def rows_of(folder: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    with open_dataset(folder / "t.zarr" / part, part) as data:
        return data.read(0, data.n), data.labels()


def test_the_training_is_the_same_and_the_threshold_is_the_best(folder: Path) -> None:
    zero = model_of(folder, "zero")
    X, codes = rows_of(folder, "train")
    assert zero.threshold == 0.0 and zero.format == "bigsvm model 1"
    for rule in ("balanced", "accuracy"):
        model = model_of(folder, rule)
        assert model.dual_coef.tobytes() == zero.dual_coef.tobytes()
        assert model.format == "bigsvm model 4" and model.about["threshold_rule"] == rule
        f = model.decision_function(X, scaled=True)
        above, below = f[codes > 0], f[codes < 0]
        best = score(above, below, fit_threshold(above.copy(), below.copy(), rule), rule)
        assert score(above, below, model.threshold, rule) == pytest.approx(best, abs=0.003)
        places = (f >= model.threshold).astype(int)
        assert (model.predict(X, scaled=True) == np.array(model.classes)[places]).all()


def test_early_snapshots_are_usable(folder: Path) -> None:
    X, codes = rows_of(folder, "test")
    fitted, at_zero = [], []
    for path in sorted((folder / "balanced" / "snapshots").iterdir())[:6]:
        model = load_model(path)
        f = model.decision_function(X, scaled=True)
        above, below = f[codes > 0], f[codes < 0]
        fitted.append(score(above, below, model.threshold, "balanced"))
        at_zero.append(score(above, below, 0.0, "balanced"))
    assert len(fitted) == 6
    assert np.mean(fitted) > np.mean(at_zero) + 0.02 and min(fitted) > 0.6, (fitted, at_zero)


def test_evaluate_shows_both(folder: Path, capsys: pytest.CaptureFixture) -> None:
    command("evaluate", folder / "balanced")
    said = capsys.readouterr().out
    X, codes = rows_of(folder, "test")
    model = model_of(folder, "balanced")
    f = model.decision_function(X, scaled=True)
    with (folder / "balanced" / "evaluation.csv").open() as file:
        last = list(csv.DictReader(file))[-1]
    assert float(last["threshold"]) == model.threshold
    for column, t in (("accuracy", model.threshold), ("accuracy_at_zero", 0.0)):
        expected = score(f[codes > 0], f[codes < 0], t, "accuracy")
        assert float(last[column]) == pytest.approx(expected)
    assert f"at 0: {100 * float(last['accuracy_at_zero']):.2f} %" in said
    summary = json.loads((folder / "balanced" / "summary.json").read_text())
    assert summary["accuracy"] == float(last["accuracy"])
    command("evaluate", folder / "zero")
    assert "at 0" not in capsys.readouterr().out
    with (folder / "zero" / "evaluation.csv").open() as file:
        assert "threshold" not in next(csv.reader(file))


def test_the_exports_decide_alike(folder: Path, tmp_path: Path) -> None:
    import onnxruntime
    from libsvm.svmutil import svm_load_model, svm_predict

    model = model_of(folder, "balanced")
    X, _ = rows_of(folder, "test")
    raw = model.scaling.offset + X.astype(np.float64) * model.scaling.scale
    for name in ("m.onnx", "m.model"):
        command("export", folder / "balanced/model.safetensors", tmp_path / name)
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    label, decision = session.run(None, {"X": raw})
    f = model.decision_function(raw, precise=True)
    np.testing.assert_allclose(decision, f, rtol=1e-9, atol=1e-12)
    clear = np.abs(f - model.threshold) > 1e-9
    assert (label[clear] == model.labels_of(f)[clear]).all()
    assert (model.labels_of(f) != model.labels_of(f - model.threshold)).any(), "it matters"
    scaled = model.scaling.apply(raw)
    rows = [{k + 1: float(v) for k, v in enumerate(row)} for row in scaled]
    found, _, _ = svm_predict([], rows, svm_load_model(str(tmp_path / "m.model")), "-q")
    assert (np.array(found)[clear] == np.where(model.places_of(f), 1, -1)[clear]).all()


def test_predict_uses_it(folder: Path, tmp_path: Path) -> None:
    command("predict", folder / "accuracy/model.safetensors", folder / "t.csv", tmp_path / "o.csv")
    with (tmp_path / "o.csv").open() as file:
        made = list(csv.DictReader(file))
    t = model_of(folder, "accuracy").threshold
    for row in made:
        assert row["label"] == ("h" if float(row["decision"]) >= t else "g")


def test_interrupted_or_not_it_is_the_same(folder: Path, tmp_path: Path) -> None:
    arguments = ["train", config(folder, "balanced"), "--run-dir", tmp_path / "run"]
    for limit in (60, 130):
        command(*arguments, "--set", f"solver.max_iterations={limit}")
    command(*arguments)
    for part in ("model.safetensors", "snapshots/model-00000150.safetensors"):
        ours, theirs = (tmp_path / "run" / part), (folder / "balanced" / part)
        assert load_model(ours).threshold == load_model(theirs).threshold


@pytest.mark.parametrize(
    ("change", "words"),
    [("model.threshold=best", "model.threshold = 'best'"), ("model.threshold=1", "threshold = 1")],
)
def test_other_words_are_refused(folder: Path, change: str, words: str) -> None:
    path = config(folder, "zero")
    with pytest.raises(UserError, match=words):
        from bigsvm.train import main

        main([str(path), "--set", change, "--run-dir", str(folder / "none")])


def test_more_than_two_classes_have_none(data_dir: Path, tmp_path: Path) -> None:
    command("prepare", data_dir / "iris.data", tmp_path / "i.zarr", "--quiet")
    text = (
        f"data: {{train: {tmp_path}/i.zarr}}\nmodel: {{threshold: balanced, kernel: {{gamma: 1}}}}"
    )
    (tmp_path / "i.yaml").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "bigsvm.train", tmp_path / "i.yaml"],
        cwd=tmp_path, env=environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2 and "is for two classes" in done.stderr, done.stderr
    assert done.stderr.count("error:") == 1 and not (tmp_path / "runs").exists()


def test_resuming_with_another_rule_is_refused(folder: Path, capsys: pytest.CaptureFixture) -> None:
    path = config(folder, "accuracy")
    assert cli.main(["train", str(path), "--run-dir", str(folder / "zero")]) == 2
    assert "threshold was None and is now 'accuracy'" in capsys.readouterr().err


def test_the_papers_configs_keep_zero() -> None:
    for path in (REPOSITORY / "configs").glob("*.yaml"):
        assert yaml.safe_load(path.read_text())["model"].get("threshold", "zero") == "zero"
