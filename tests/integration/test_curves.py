"""Confusion, ROC and precision-recall curves of two classes; tuning by other scores."""

import csv
from pathlib import Path

import numpy as np
import pytest
import yaml
from sklearn import metrics

from bigsvm import cli, load_model
from bigsvm.models.scores import POINTS, average_precision, curves_of
from bigsvm.stores.store import open_dataset
from tests.support.real_table import command, magic_table, train_on


@pytest.mark.parametrize("seed", range(10))
def test_the_curves_are_those_of_scikit_learn(seed: int) -> None:
    draw = np.random.default_rng(seed)
    signs = np.where(draw.uniform(size=200) < 0.3, 1, -1)
    decisions = np.round(draw.normal(size=200) + 0.5 * signs, 1)  # with ties
    found = curves_of(signs, decisions)
    false_rate, recall, thresholds = metrics.roc_curve(signs, decisions, drop_intermediate=False)
    np.testing.assert_allclose(found.false_positive_rate, false_rate)
    np.testing.assert_allclose(found.recall, recall)
    np.testing.assert_array_equal(found.threshold, thresholds)
    precision, recall, _ = metrics.precision_recall_curve(signs, decisions)
    np.testing.assert_allclose(found.precision[::-1], precision)
    expected = metrics.average_precision_score(signs, decisions)
    assert found.average_precision == pytest.approx(expected)
    assert average_precision(signs, decisions) == found.average_precision
    for t in (-0.5, 0.0, 0.7):
        _, at, precision_at = found.at(t)
        chosen = np.where(decisions >= t, 1, -1)
        assert at == pytest.approx(metrics.recall_score(signs, chosen))
        assert precision_at == pytest.approx(metrics.precision_score(signs, chosen))


def test_long_curves_are_thinned_and_one_class_has_none() -> None:
    draw = np.random.default_rng(0)
    signs, decisions = np.where(draw.uniform(size=50_000) < 0.5, 1, -1), draw.normal(size=50_000)
    found = curves_of(signs, decisions)
    assert len(found.recall) == POINTS and found.recall[-1] == 1.0
    assert found.auc == pytest.approx(metrics.roc_auc_score(signs, decisions))
    alone = curves_of(np.full(5, -1), decisions[:5])
    assert np.isnan(alone.auc) and np.isnan(alone.average_precision)


@pytest.fixture(scope="module")
def folder(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("curves")
    train_on(magic_table(data_dir, 900), folder, tolerance=0.1)
    return folder


def test_evaluate_writes_confusion_and_curves(folder: Path, capsys: pytest.CaptureFixture) -> None:
    run = folder / "run"
    command("evaluate", run)
    said = capsys.readouterr().out
    with open_dataset(folder / "table.zarr/test", "test") as test:
        model = load_model(run / "model.safetensors")
        f, codes = model.decision_function(test.read(0, test.n), scaled=True), test.labels()
    chosen = np.where(f >= 0, 1, -1)
    with (run / "confusion.csv").open() as file:
        header, *lines = csv.reader(file)
    assert header == ["class", "g", "h"]
    counts = np.array([line[1:] for line in lines], int)
    np.testing.assert_array_equal(counts, metrics.confusion_matrix(codes, chosen))
    shown = [
        f"{100 * score(codes, chosen):.2f} %"
        for score in (metrics.recall_score, metrics.precision_score, metrics.f1_score)
    ]
    (line,) = (line for line in said.splitlines() if line.startswith("h "))
    assert " ".join(line.split()[2:]) == " ".join(shown)
    average = metrics.average_precision_score(codes, f)
    assert f"are of class h; average precision {100 * average:.2f} %" in said
    with (run / "curves.csv").open() as file:
        points = list(csv.DictReader(file))
    assert float(points[-1]["recall"]) == 1.0 and float(points[0]["threshold"]) == np.inf
    assert (run / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert str(run / "curves.png") in said.splitlines()[-1]
    command("train", folder / "table.yaml", "--run-dir", run, "--fresh")
    assert not (run / "curves.csv").exists() and not (run / "curves.png").exists()


@pytest.mark.parametrize("metric", ["auc", "f1", "average_precision"])
def test_tuning_by_another_score(metric: str, data_dir: Path, tmp_path: Path) -> None:
    values = {
        "data": {"source": str(data_dir / "german.numer"), "prepare": {"scaling": "standard"},
                 "train": str(tmp_path / "g.zarr")},
        "model": {"kernel": {"name": "rbf", "sigma": 3}},
        "tune": {"C": [0.1, 1, 10], "sigma": [2, 8], "folds": 3, "metric": metric,
                 "subsample": 300},
    }  # fmt: skip
    (tmp_path / "t.yaml").write_text(yaml.safe_dump(values))
    command("tune", tmp_path / "t.yaml", "--run-dir", tmp_path / "run")
    with (tmp_path / "run" / "tune.csv").open() as file:
        points = list(csv.DictReader(file))
    assert len(points) == 6
    scores = [float(point[f"{metric}_mean"]) for point in points]
    assert all(0 < score <= 1 for score in scores) and len(set(scores)) > 1
    best = yaml.safe_load((tmp_path / "run" / "best.yaml").read_text())["model"]
    chosen = points[int(np.argmax(scores))]
    assert best["C"] == float(chosen["C"])
    assert best["kernel"]["sigma"] == float(chosen["sigma"])


def test_an_unknown_score_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "t.yaml").write_text(
        "data: {source: heart}\nmodel: {kernel: {gamma: 1}}\ntune: {metric: logloss}\n"
    )
    assert cli.main(["tune", str(tmp_path / "t.yaml")]) == 2
    error = capsys.readouterr().err
    assert "tune.metric = 'logloss'" in error and "average_precision" in error
