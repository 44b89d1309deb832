"""More than two classes from raw file to exported model, through real processes."""

import csv
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from bigsvm.config import PrepareOptions
from bigsvm.export import export
from bigsvm.models.model import Model, load_model
from bigsvm.predict import predict
from bigsvm.preparation.pipeline import prepare
from bigsvm.stores.store import open_dataset
from tests.support import small_run
from tests.support.class_problems import digits, write_csv
from tests.support.trainings import (
    Train,
    assert_same_run,
    final,
    newest_checkpoint,
    reported,
    resumed_at,
    snapshots,
    summary,
    trainer,
    wait_until,
)

SCHEDULES = {
    "exact": ("solver.schedule=exact",),
    "block": ("solver.schedule=block", "solver.hot_set=24"),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits of scikit-learn, of which 500 to test."""
    folder = tmp_path_factory.mktemp("digits")
    x, y = digits()
    source = write_csv(folder / "digits.csv", 16 * x, (f"digit {label}" for label in y))
    prepare(source, folder / "digits.zarr", PrepareOptions(scaling="minmax", test_rows=500))
    return folder / "digits.zarr"


@pytest.fixture(scope="module")
def config(store: Path) -> Path:
    """Takes the place of the one in conftest.py, for `start` too."""
    path = store.with_name("digits.yaml")
    values = {
        "data": {"train": str(store), "test": str(store / "test")},
        "model": {"C": 10, "kernel": {"name": "rbf", "gamma": 0.01}},
        "solver": {"schedule": "exact", "absolute_tolerance": 2e-5, "threads": 1},
        "run": {"snapshot_every": 2000, "checkpoint_every": 500},
    }
    path.write_text(yaml.safe_dump(values))
    return path


@pytest.fixture(scope="module")
def train(config: Path) -> Train:
    return trainer(config)


@pytest.fixture(scope="module")
def runs(train: Train, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run with each schedule that nothing disturbs."""
    folder = tmp_path_factory.mktemp("runs")
    for name, settings in SCHEDULES.items():
        train(folder / name, *settings)
        assert summary(folder / name)["status"] == "converged"
    return {name: folder / name for name in SCHEDULES}


def rows_and_labels(store: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    with open_dataset(store, part) as data:
        return data.read(0, data.n), np.array(data.classes)[data.labels()]


def test_accuracy_is_that_of_svc(store: Path, runs: dict[str, Path]) -> None:
    from sklearn.svm import SVC

    x, y = rows_and_labels(store, "train")
    svc = SVC(C=10, gamma=0.01).fit(x, y).score(*rows_and_labels(store, "test"))
    assert svc > 0.97
    for run in runs.values():
        assert summary(run)["accuracy"] >= svc - 0.02


def test_iris_is_as_accurate_as_svc(data_dir: Path, train: Train, tmp_path: Path) -> None:
    """Over several splits: of so few rows one alone tells little."""
    from sklearn.svm import SVC

    ours, theirs = [], []
    for seed in range(3):
        store = tmp_path / f"{seed}.zarr"
        options = PrepareOptions(scaling="standard", test_fraction=0.5, seed=seed)
        prepare(data_dir / "iris.data", store, options)
        x, y = rows_and_labels(store, "train")
        theirs.append(SVC(C=10, gamma=0.25).fit(x, y).score(*rows_and_labels(store, "test")))
        sets = (f"data.train={store}", f"data.test={store}/test", "model.kernel.gamma=0.25")
        train(tmp_path / str(seed), *sets)
        ours.append(summary(tmp_path / str(seed))["accuracy"])
        assert load_model(tmp_path / str(seed) / "model.safetensors").classes == (
            "Iris-setosa", "Iris-versicolor", "Iris-virginica",
        )  # fmt: skip
    assert np.mean(ours) >= np.mean(theirs) - 0.01


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_model_is_that_of_two_class_runs(
    schedule: str, store: Path, runs: dict[str, Path], train: Train, tmp_path: Path
) -> None:
    """Of a store with a `positive`, the same command trains one class against the rest."""
    many = load_model(runs[schedule] / "model.safetensors")
    k, run = 7, tmp_path / "run"
    positive = f"data.train={{path: '{store}', positive: '{many.classes[k]}'}}"
    train(run, *SCHEDULES[schedule], positive, "data.test=null")
    one = load_model(run / "model.safetensors")
    assert one.classes == ("rest", many.classes[k])
    own = np.flatnonzero(many.dual_coef[k])
    np.testing.assert_array_equal(many.support_index[own], one.support_index)
    unit = np.abs(many.dual_coef[k]).sum()
    np.testing.assert_allclose(many.dual_coef[k, own] / unit, one.dual_coef, rtol=1e-9)
    told = summary(runs[schedule])["classes"][k]
    smallest = min(of_class["objective"] for of_class in summary(runs[schedule])["classes"])
    assert unit == pytest.approx(smallest / told["objective"], rel=1e-9)
    for key in ("iterations", "n_support", "n_working", "gap"):
        assert told[key] == summary(run)[key]


def test_what_a_run_tells(runs: dict[str, Path]) -> None:
    for run in runs.values():
        told = summary(run)
        assert [of_class["label"] for of_class in told["classes"]] == [
            f"digit {k}" for k in range(10)
        ]
        assert told["iterations"] == sum(of_class["iterations"] for of_class in told["classes"])
        assert told["true_gap"] == max(of_class["true_gap"] for of_class in told["classes"])
        for key in ("relative_gap", "true_relative_gap"):
            assert told[key] == max(of_class[key] for of_class in told["classes"]) < 1
        assert told["true_gap"] <= 2e-5 and 0 <= told["drift"] < 1e-12
        assert all(of_class["converged"] for of_class in told["classes"])
        model = load_model(run / "model.safetensors")
        assert told["n_support"] == model.n_support
        assert model.about["iteration"] == told["iterations"]
        numbers = sorted(int(name[6:14]) for name in snapshots(run))
        assert numbers == list(range(2000, told["iterations"] + 1, 2000))
        assert reported(run) == sorted(reported(run))
        json.loads((run / "metrics.jsonl").read_text().splitlines()[0], parse_constant=pytest.fail)
    assert summary(runs["block"])["passes"] > 2


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_killed_and_resumed_it_is_the_same_run(
    schedule: str, runs: dict[str, Path], train: Train, start: Callable, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    total = summary(runs[schedule])["iterations"]
    for share in (0.2, 0.6):
        process = start(run, *SCHEDULES[schedule])
        wait_until(lambda: newest_checkpoint(run) >= share * total, process)  # noqa: B023
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    done = train(run, *SCHEDULES[schedule])
    assert resumed_at(done.stderr) >= 0.6 * total
    assert_same_run(run, runs[schedule])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_limits_end_a_run_and_larger_ones_resume(
    schedule: str, runs: dict[str, Path], train: Train, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    train(run, *SCHEDULES[schedule], "solver.max_iterations=60")
    told = summary(run)
    assert told["status"] == "max_iterations"
    assert {of_class["iterations"] for of_class in told["classes"]} == {60}
    assert not any(of_class["converged"] for of_class in told["classes"])
    assert load_model(run / "model.safetensors").about["iteration"] == 600
    train(run, *SCHEDULES[schedule], "solver.time_limit=0.001")
    assert summary(run)["status"] == "time_limit"
    train(run, *SCHEDULES[schedule])
    assert final(run) == final(runs[schedule])


def test_dask_gives_the_same_bits(runs: dict[str, Path], train: Train, tmp_path: Path) -> None:
    train(tmp_path / "run", *SCHEDULES["block"], "cluster.kind=local", "cluster.workers=2")
    assert final(tmp_path / "run") == final(runs["block"])
    assert snapshots(tmp_path / "run") == snapshots(runs["block"])


def test_evaluation(store: Path, runs: dict[str, Path]) -> None:
    from sklearn import metrics

    run = runs["block"]
    code, out, err = small_run.run("bigsvm.evaluate", run)
    assert code == 0, err
    with (run / "evaluation.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [int(line["iteration"]) for line in lines] == [
        *range(2000, summary(run)["iterations"], 2000), summary(run)["iterations"],
    ]  # fmt: skip
    x, y = rows_and_labels(store, "test")
    model = load_model(run / "model.safetensors")
    chosen, decision = model.predict(x, scaled=True), model.decision_function(x, scaled=True)
    expected = {
        "accuracy": metrics.accuracy_score(y, chosen),
        "balanced_accuracy": metrics.balanced_accuracy_score(y, chosen),
        "f1": metrics.f1_score(y, chosen, average="macro"),
        "auc": np.mean(
            [
                metrics.roc_auc_score(y == c, f)
                for c, f in zip(model.classes, decision.T, strict=True)
            ]
        ),
    }
    for key, value in expected.items():
        assert float(lines[-1][key]) == pytest.approx(value, abs=1e-12)
    with (run / "confusion.csv").open() as file:
        head, *table = list(csv.reader(file))
    assert head[1:] == [line[0] for line in table] == list(model.classes)
    counts = np.array([line[1:] for line in table], int)
    np.testing.assert_array_equal(counts, metrics.confusion_matrix(y, chosen))
    report = metrics.classification_report(y, chosen, output_dict=True)
    assert out.splitlines()[-1].endswith(f", {run / 'confusion.csv'}")
    shown = next(line for line in out.splitlines() if line.startswith("digit 8"))
    for key in ("recall", "precision", "f1-score"):
        assert f"{100 * report['digit 8'][key]:.2f} %" in shown
    first, last = float(lines[0]["accuracy"]), float(lines[-1]["accuracy"])
    assert first < last == summary(run)["accuracy"]


@pytest.mark.parametrize("suffix", ["csv", "parquet", "zarr", "npy"])
def test_prediction(suffix: str, store: Path, runs: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / f"p.{suffix}"
    model = load_model(runs["exact"] / "model.safetensors")
    source = store.with_suffix(".csv") if suffix == "parquet" else store
    told = str(predict(runs["exact"] / "model.safetensors", source, out))
    assert "digit 9" in told and "accuracy" in told
    if suffix == "parquet":  # raw rows, all of them
        raw, _ = digits()
        x, scaled = 16 * raw.astype(np.float64), False
    else:
        x, scaled = rows_and_labels(store, "test")[0], True
    decision, label = read_predictions(out, model)
    np.testing.assert_array_equal(decision, model.decision_function(x, scaled=scaled))
    if label is not None:
        assert label == model.predict(x, scaled=scaled).tolist()


def read_predictions(path: Path, model: Model) -> tuple[np.ndarray, list[Any] | None]:
    names = [f"decision_{label}" for label in model.classes]
    if path.suffix == ".csv":
        with path.open() as file:
            lines = list(csv.DictReader(file))
        assert list(lines[0]) == ["row", *names, "label"]
        values = [[float(line[name]) for name in names] for line in lines]
        return np.array(values), [line["label"] for line in lines]
    if path.suffix == ".parquet":
        from pyarrow import parquet

        table = parquet.read_table(path)
        values = [table[name].to_numpy() for name in names]
        return np.stack(values, axis=1), table["label"].to_pylist()
    if path.suffix == ".zarr":
        import zarr

        group = zarr.open_group(path, mode="r")
        return np.asarray(group["decision"]), np.asarray(group["label"]).tolist()
    return np.load(path), None


def test_exported_models_decide_the_same(
    store: Path, runs: dict[str, Path], tmp_path: Path
) -> None:
    import onnxruntime
    from libsvm import svmutil

    file = runs["exact"] / "model.safetensors"
    model = load_model(file)
    for name in ("m.onnx", "m.model"):
        export(file, tmp_path / name)
    raw = 16 * digits()[0].astype(np.float64)
    ours, precise = model.decision_function(raw), model.decision_function(raw, precise=True)
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    label, decision = session.run(["label", "decision"], {"X": raw})
    assert label.tolist() == model.predict(raw).tolist()
    np.testing.assert_allclose(decision, precise, rtol=0, atol=1e-10)
    np.testing.assert_allclose(decision, ours, rtol=0, atol=1e-5)
    assert model.scaling is not None
    scaled = model.scaling.apply(raw).astype(np.float64)
    loaded = svmutil.svm_load_model(str(tmp_path / "m.model"))
    numbers, _, values = svmutil.svm_predict([], scaled, loaded, "-q")
    beside = json.loads((tmp_path / "m.model.json").read_text())
    assert [beside["labels"][str(int(k))] for k in numbers] == label.tolist()
    pairs = [(i, j) for i in range(10) for j in range(i + 1, 10)]
    differences = np.stack([precise[:, i] - precise[:, j] for i, j in pairs], axis=1)
    np.testing.assert_allclose(values, differences, rtol=0, atol=1e-9)


@pytest.mark.parametrize("intercept", [0.0, (0.5, -0.25, 0.0, 1.0)], ids=["", "intercept"])
@pytest.mark.parametrize("kernel", ["rbf", "linear", "laplacian", "poly"])
def test_any_model_of_many_classes_travels(kernel: str, intercept: Any, tmp_path: Path) -> None:
    import onnxruntime
    from libsvm import svmutil

    random = np.random.default_rng(0)
    parameters = {"name": kernel, "gamma": 0.3, "coef0": 1.0, "degree": 2}
    made = Model(
        random.normal(size=(30, 3)).astype(np.float32), random.normal(size=(4, 30)),
        np.arange(30), parameters, (3, 5, 7, 11), intercept=intercept,
    )  # fmt: skip
    made.save(tmp_path / "m.safetensors")
    model = load_model(tmp_path / "m.safetensors")
    assert model.intercept == intercept
    rows = random.normal(size=(50, 3)).astype(np.float32)
    precise = model.decision_function(rows, precise=True)
    np.testing.assert_allclose(model.decision_function(rows), precise, atol=1e-4)
    export(tmp_path / "m.safetensors", tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    label, decision = session.run(["label", "decision"], {"X": rows.astype(np.float64)})
    np.testing.assert_array_equal(label, model.predict(rows))
    np.testing.assert_allclose(decision, precise, atol=1e-12)
    if kernel == "laplacian":
        return  # LIBSVM has none
    export(tmp_path / "m.safetensors", tmp_path / "m.model")
    loaded = svmutil.svm_load_model(str(tmp_path / "m.model"))
    numbers, _, values = svmutil.svm_predict([], rows.astype(np.float64), loaded, "-q")
    np.testing.assert_array_equal(numbers, model.predict(rows))
    pairs = [(i, j) for i in range(4) for j in range(i + 1, 4)]
    differences = np.stack([precise[:, i] - precise[:, j] for i, j in pairs], axis=1)
    np.testing.assert_allclose(values, differences, rtol=0, atol=1e-9)


def test_inspection(store: Path, runs: dict[str, Path]) -> None:
    model = load_model(runs["exact"] / "model.safetensors")
    _, out, _ = small_run.run("bigsvm.inspect", runs["exact"] / "model.safetensors", "--json")
    facts = json.loads(out)
    assert facts["classes"] == list(model.classes)
    _, y = rows_and_labels(store, "train")
    support = y[model.support_index]
    for k, label in enumerate(model.classes):
        own = model.dual_coef[k] > 0
        assert set(support[own]) == {label}
        assert facts["own_class_in_it"][label] == np.count_nonzero(own)
        assert facts["support_by_decision"][label] == np.count_nonzero(model.dual_coef[k])
    _, out, _ = small_run.run("bigsvm.inspect", store, "--json")
    counts = json.loads(out)["train"]["classes"]
    assert counts == {label: int(np.count_nonzero(y == label)) for label in model.classes}
    code, out, _ = small_run.run("bigsvm.inspect", runs["exact"])
    assert code == 0
    assert any("digit 3" in line and "true gap" in line for line in out.splitlines())


def test_ties_go_to_the_first_class(tmp_path: Path) -> None:
    coef = np.array([[1.0], [1.0], [1.0]])
    model = Model(
        np.zeros((1, 2), np.float32), coef, np.zeros(1, int), {"name": "rbf"}, ("b", "a", "c")
    )
    assert model.predict(np.zeros((1, 2))).tolist() == ["b"]
    assert model.decision_function(np.zeros((2, 2))).shape == (2, 3)
