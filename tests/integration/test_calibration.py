"""Probabilities: fitted to real rows, kept in the model, in its exports and predictions."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import brier_score_loss, log_loss
from sklearn.svm import SVC

from bigsvm import BigSVC, cli, load_model
from bigsvm.core.errors import UserError
from bigsvm.models.calibration import Calibration, fit_calibration, reliability_of
from tests.support.real_table import NAMES, command, magic_table, train_on


@pytest.fixture(scope="module")
def real(data_dir: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Decision values and classes of rows that a classifier has not seen, twice."""
    table = magic_table(data_dir, 2400)
    X = (table[NAMES] - table[NAMES].mean()) / table[NAMES].std()
    y = (table["class"] == "h").to_numpy().astype(int)
    svc = SVC(C=10, gamma=0.1).fit(X[:800], y[:800])
    return *(svc.decision_function(X[800:]).reshape(2, 800)), *y[800:].reshape(2, 800)


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
@pytest.mark.parametrize("unit", [1.0, 1e-6, -1e5])
def test_it_is_that_of_scikit_learn(real: tuple, method: str, unit: float) -> None:
    f, new, y, _ = real

    class Given(FrozenEstimator):
        classes_ = np.array([0, 1])

        def __init__(self, estimator: object = None) -> None:
            self.estimator = estimator

        def decision_function(self, X: np.ndarray) -> np.ndarray:
            return X[:, 0]

        def fit(self, X: np.ndarray, y: np.ndarray) -> "Given":
            return self

    if unit < 0 and method == "isotonic":
        expected = IsotonicRegression(out_of_bounds="clip").fit(f * unit, y).predict(new * unit)
    else:
        theirs = CalibratedClassifierCV(Given(SVC()), method=method, ensemble=False, cv=2)
        expected = theirs.fit(f[:, None] * unit, y).predict_proba(new[:, None] * unit)[:, 1]
    ours = fit_calibration(f * unit, y, (0, 1), method).probabilities(new * unit)
    np.testing.assert_allclose(ours[:, 1], expected, atol=2e-6 if method == "sigmoid" else 1e-12)
    np.testing.assert_array_equal(ours.sum(axis=1), 1.0)


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_a_weight_is_that_many_rows(real: tuple, method: str) -> None:
    f, new, y, _ = real
    weight = np.arange(len(f)) % 3
    whole = fit_calibration(np.repeat(f, weight), np.repeat(y, weight), (0, 1), method)
    weighted = fit_calibration(f, y, (0, 1), method, weight.astype(float))
    expected = whole.probabilities(new)
    np.testing.assert_allclose(weighted.probabilities(new), expected, atol=1e-7)
    assert np.abs(fit_calibration(f, y, (0, 1), method).probabilities(new) - expected).max() > 1e-3


def test_scores_are_those_of_scikit_learn(real: tuple) -> None:
    f, new, y, truth = real
    p = fit_calibration(f, y, (0, 1), "sigmoid").probabilities(new)
    found = reliability_of(p, truth)
    assert found.brier_score == pytest.approx(brier_score_loss(truth, p[:, 1]))
    assert found.log_loss == pytest.approx(log_loss(truth, p))
    assert sum(part["rows"] for part in found.curve) == found.rows == len(truth)
    assert 0 < found.expected_calibration_error < 0.1
    # Far too certain, and in the wrong direction
    assert reliability_of(p**9 / (p**9).sum(axis=1, keepdims=True), truth).brier_score > (
        found.brier_score
    )
    assert reliability_of(p[:, ::-1], truth).expected_calibration_error > 0.3


def test_decision_values_at_the_edges() -> None:
    f, places = np.array([-2.0, -1.0, 1.0, 2.0]), np.array([0, 0, 1, 1])
    for method in ("sigmoid", "isotonic"):
        made = fit_calibration(f, places, "ab", method)
        far = made.probabilities(np.array([-1e300, 1e300]))
        assert np.isfinite(far).all() and far[0, 1] < 0.2 < 0.8 < far[1, 1]
        flat = fit_calibration(np.zeros(4), places, "ab", method)
        np.testing.assert_allclose(flat.probabilities(np.array([0.0])), [[0.5, 0.5]])
        with pytest.raises(UserError, match="none of the 2 rows is of class 'a'"):
            fit_calibration(f[2:], places[2:], "ab", method)
    nowhere = Calibration.from_json(
        {"method": "isotonic", "outputs": [[[0, 1], [0, 1]]] * 3, "about": {}}, 3
    )
    assert (nowhere.probabilities(np.full((1, 3), -1.0)) == 1 / 3).all()


@pytest.fixture(scope="module")
def folder(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a real table, and other rows of that table in a CSV file."""
    folder = tmp_path_factory.mktemp("calibration")
    table = magic_table(data_dir, 2400)
    train_on(table[:1500], folder)
    table[1500:].to_csv(folder / "held-out.csv", index=False)
    return folder


def test_the_command(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    before = load_model(folder / "run/model.safetensors")
    command("calibrate", folder / "run", "--on", folder / "held-out.csv")
    said = capsys.readouterr().out
    assert "sigmoid on 900 rows of held-out.csv: Brier score 0.1" in said
    model = load_model(folder / "run/model.safetensors")
    assert model.calibration is not None and model.format == before.format
    assert model.dual_coef.tobytes() == before.dual_coef.tobytes()
    with pytest.raises(UserError, match=r"python -m bigsvm\.calibrate"):
        before.predict_proba(np.zeros((1, 10)))
    table = pd.read_csv(folder / "held-out.csv")
    p = model.predict_proba(table)
    assert p.shape == (900, 2) and model.classes == ("g", "h")
    assert abs(p[:, 1].mean() - (table["class"] == "h").mean()) < 0.01

    # evaluate: better than the share of the class for every row
    command("evaluate", folder / "run")
    said = capsys.readouterr().out
    found = json.loads((folder / "run/calibration.json").read_text())
    assert f"Brier score {found['brier_score']:.4f}" in said and "calibration.json" in said
    assert (folder / "run/calibration.png").read_bytes().startswith(b"\x89PNG")
    assert str(folder / "run/calibration.png") in said.splitlines()[-1]
    rows = sum(part["rows"] for part in found["curve"])
    assert rows == found["rows"] == 375
    share = sum(part["rows"] * part["share"] for part in found["curve"]) / rows
    assert found["brier_score"] < 0.6 * share * (1 - share)
    assert found["expected_calibration_error"] < 0.08

    command("inspect", folder / "run/model.safetensors")
    assert "sigmoid" in capsys.readouterr().out


def test_a_continued_training_says_that_its_calibration_is_gone(
    data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    table = magic_table(data_dir, 600)
    run = train_on(table[:400], tmp_path, max_iterations=100)
    table[400:].to_csv(tmp_path / "held-out.csv", index=False)
    command("calibrate", run, "--on", tmp_path / "held-out.csv")
    capsys.readouterr()
    more = ("--set", "solver.max_iterations=200")
    command("train", tmp_path / "table.yaml", "--run-dir", run, *more)
    assert "was calibrated" in capsys.readouterr().err
    assert load_model(run / "model.safetensors").calibration is None


def test_predictions_and_onnx(folder: Path, tmp_path: Path) -> None:
    import onnxruntime
    import zarr

    model_file, rows = tmp_path / "isotonic.safetensors", folder / "held-out.csv"
    arguments = ["--on", rows, "--label-column", "class", "--method", "isotonic"]
    command("calibrate", folder / "run/model.safetensors", *arguments, "--out", model_file)
    model = load_model(model_file)
    table = pd.read_csv(rows)
    p = model.predict_proba(table)
    for out in ("o.csv", "o.parquet", "o.zarr"):
        command("predict", model_file, rows, tmp_path / out, "--probability", "--quiet")
    with (tmp_path / "o.csv").open() as file:
        names = next(csv.reader(file))
    assert names == ["row", "decision", "probability_g", "probability_h", "label"]
    for made in (pd.read_csv(tmp_path / "o.csv"), pd.read_parquet(tmp_path / "o.parquet")):
        np.testing.assert_array_equal(made[["probability_g", "probability_h"]], p)
    np.testing.assert_array_equal(zarr.open_group(tmp_path / "o.zarr")["probability"], p)

    command("export", model_file, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    X = table[NAMES].to_numpy()
    label, decision, probability = session.run(None, {"X": X})
    expected = model.probabilities_of(model.decision_function(X, precise=True))
    np.testing.assert_allclose(probability, expected, atol=1e-9)
    assert decision.shape == label.shape == (900,)
    plain = replace(model, calibration=None)
    plain.save(tmp_path / "plain.safetensors")
    command("export", tmp_path / "plain.safetensors", tmp_path / "plain.onnx")
    outputs = onnxruntime.InferenceSession(tmp_path / "plain.onnx").get_outputs()
    assert [output.name for output in outputs] == ["label", "decision"]


def test_the_units_of_decision_values(folder: Path, tmp_path: Path) -> None:
    """As bigsvm/models/README.md has it: 2 x objective is the margin, the unit of BigSVC."""
    store = folder / "table.zarr/test"
    command("predict", folder / "run/model.safetensors", store, tmp_path / "f.npy", "--quiet")
    margin = 2 * json.loads((folder / "run/summary.json").read_text())["objective"]
    svc = BigSVC(C=10, sigma=2.0, algorithm="mfw").fit(str(folder / "table.zarr"))
    expected = svc.decision_function(str(store))
    np.testing.assert_allclose(np.load(tmp_path / "f.npy") / margin, expected, atol=1e-9)
    assert margin < 0.01 and np.abs(expected).max() > 1


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_three_classes(data_dir: Path, tmp_path: Path, method: str) -> None:
    import onnxruntime

    options = ["--scaling", "standard", "--test-fraction", 0.4, "--quiet"]
    command("prepare", data_dir / "iris.data", tmp_path / "i.zarr", *options)
    (tmp_path / "i.yaml").write_text(
        f"data: {{train: {tmp_path}/i.zarr}}\nmodel: {{kernel: {{gamma: 0.5}}}}"
    )
    command("train", tmp_path / "i.yaml", "--run-dir", tmp_path / "run")
    arguments = ["--on", tmp_path / "i.zarr", "--method", method]
    command("calibrate", tmp_path / "run", *arguments)
    model = load_model(tmp_path / "run/model.safetensors")
    command("predict", tmp_path / "run/model.safetensors", data_dir / "iris.data",
            tmp_path / "o.csv", "--probability", "--quiet")  # fmt: skip
    made = pd.read_csv(tmp_path / "o.csv")
    p = made[[f"probability_{label}" for label in model.classes]].to_numpy()
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert np.mean(np.array(model.classes)[p.argmax(axis=1)] == made["label"]) > 0.9
    command("export", tmp_path / "run/model.safetensors", tmp_path / "m.onnx")
    X = pd.read_csv(data_dir / "iris.data", header=None).iloc[:, :4].to_numpy()
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    np.testing.assert_allclose(session.run(["probability"], {"X": X})[0], p, atol=1e-5)
    command("evaluate", tmp_path / "run", "--test", tmp_path / "i.zarr/test")
    assert json.loads((tmp_path / "run/calibration.json").read_text())["rows"] == 60
    assert (tmp_path / "run/calibration.png").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["calibrate", "run", "--on", "none.csv"], "none.csv: there is no such file"),
        (["calibrate", "none", "--on", "held-out.csv"], "none: there is no such file"),
        (["calibrate", "run"], "--on"),
        (["calibrate", "run", "--on", "x.csv", "--method", "platt"], "invalid choice: 'platt'"),
        (["calibrate", "run", "--on", "held-out.csv", "--out", "m.onnx"], "a file *.safetensors"),
        (["calibrate", "run", "--on", "no-labels.csv"], "has no column 'class', which held"),
        (["calibrate", "run", "--on", "numbers.csv"], "the labels, which are needed here"),
        (["calibrate", "run", "--on", "one.csv"], "one.csv: a calibration needs rows of every"),
        (
            ["predict", "plain.safetensors", "held-out.csv", "o.csv", "--probability"],
            "plain.safetensors has not been calibrated",
        ),
        (
            ["predict", "run/model.safetensors", "held-out.csv", "o.npy", "--probability"],
            "o.npy holds decision values alone",
        ),
    ],
)
def test_mistakes_are_one_line(
    folder: Path,
    arguments: list[str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    monkeypatch.chdir(folder)
    if load_model(folder / "run/model.safetensors").calibration is None:
        command("calibrate", "run", "--on", "held-out.csv")
    table = pd.read_csv("held-out.csv")
    table.assign(id=1)[["id", *NAMES]].to_csv("no-labels.csv", index=False)
    table[NAMES].to_csv("numbers.csv", index=False, header=False)
    table[table["class"] == "g"].to_csv("one.csv", index=False)
    model = load_model("run/model.safetensors")
    replace(model, calibration=None).save("plain.safetensors")
    capsys.readouterr()
    assert cli.main(arguments) == 2
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1
    assert load_model("run/model.safetensors").calibration == model.calibration


@pytest.mark.parametrize(
    "content",
    [
        {"method": "tree"},
        {"outputs": []},
        {"outputs": [[float("nan"), 0.0]]},
        {"outputs": [[1.0]]},
        {"method": "isotonic", "outputs": [[[1, 0], [0, 1]]]},
        {"method": "isotonic", "outputs": [[[0, 1], [0, 2]]]},
        {"method": "isotonic", "outputs": [[[0, 1], [1, 0]]]},
        {"method": "isotonic", "outputs": [[[], []]]},
        {"method": "isotonic", "outputs": [[[0, 1], [0]]]},
    ],
)
def test_a_calibration_of_a_stranger_is_validated(content: dict) -> None:
    given = {"method": "sigmoid", "outputs": [[-1.0, 0.0]], "about": {}}
    assert Calibration.from_json(given, 1).probabilities(np.zeros(1))[0, 1] == 0.5
    with pytest.raises(ValueError):
        Calibration.from_json(given | content, 1)
