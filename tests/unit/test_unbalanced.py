"""Of rare positives, what accuracy does not tell: balanced accuracy, AUC, and the majority."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from bigsvm import load_model
from bigsvm.models.evaluation import Majority, final_scores, majority_of
from bigsvm.stores.store import open_dataset
from tests.support.real_table import command, magic_table, train_on


def rare(data_dir: Path, share: float, rows: int = 1200) -> pd.DataFrame:
    """A real table in which the hadrons are rare."""
    table = magic_table(data_dir, 19_020)
    hadrons = int(rows * share)
    parts = [table[table["class"] == "g"][: rows - hadrons], table[table["class"] == "h"][:hadrons]]
    return pd.concat(parts).sample(frac=1, random_state=0)


def test_unbalanced_classes_show_balanced_accuracy_and_auc(
    data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    run = train_on(rare(data_dir, 0.1), tmp_path, tolerance=0.1)
    said = capsys.readouterr().out
    summary = json.loads((run / "summary.json").read_text())
    model = load_model(run / "model.safetensors")
    with open_dataset(tmp_path / "table.zarr/test", "test") as test:
        decision = model.decision_function(test.read(0, test.n), scaled=True)
        codes = test.labels()
    assert summary["auc"] == pytest.approx(roc_auc_score(codes, decision), abs=1e-12)
    balanced = balanced_accuracy_score(codes, np.where(decision >= 0, 1, -1))
    assert summary["balanced_accuracy"] == pytest.approx(balanced, abs=1e-12)
    share = np.mean(codes == -1)
    assert summary["majority"] == {"label": "g", "share": pytest.approx(share)}
    assert f"balanced {100 * balanced:.2f} %, AUC {100 * summary['auc']:.2f} %" in said
    assert ("no better than always predicting 'g'" in said) == (summary["accuracy"] <= share)


def test_a_useless_model_is_called_so(
    data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    run = train_on(rare(data_dir, 0.04, 600), tmp_path, max_iterations=1)
    capsys.readouterr()
    summary = json.loads((run / "summary.json").read_text())
    assert summary["accuracy"] <= summary["majority"]["share"], "one pattern decides nothing"
    command("train", tmp_path / "table.yaml", "--run-dir", tmp_path / "run", "--fresh")
    line = f"warning: no better than always predicting 'g', which is right in {share(summary)} %"
    assert line in capsys.readouterr().out
    command("evaluate", run)
    assert "warning: the last model is no better than always" in capsys.readouterr().out


def share(summary: dict) -> str:
    return f"{100 * summary['majority']['share']:.2f}"


def test_balanced_classes_show_accuracy_alone(
    data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    train_on(rare(data_dir, 0.5, 800), tmp_path, tolerance=0.1)
    said = capsys.readouterr().out
    assert "test accuracy" in said and "AUC" not in said and "no better" not in said


def test_the_scores_of_more_than_two_classes(data_dir: Path, tmp_path: Path) -> None:
    command(
        "prepare", data_dir / "iris.data", tmp_path / "iris.zarr", "--test-fraction", 0.4, "--quiet"
    )
    (tmp_path / "iris.yaml").write_text(
        f"data: {{train: {tmp_path}/iris.zarr, test: {tmp_path}/iris.zarr/test}}\n"
        "model: {C: 10, kernel: {name: rbf, sigma: 1}}\n"
    )
    command("train", tmp_path / "iris.yaml", "--run-dir", tmp_path / "run")
    model = load_model(tmp_path / "run/model.safetensors")
    found = final_scores(model, tmp_path / "iris.zarr/test")
    with open_dataset(tmp_path / "iris.zarr/test", "test") as test:
        codes = test.labels()
        places = model.places_of(model.decision_function(test.read(0, test.n), scaled=True))
    assert found["accuracy"] == np.mean(places == codes) > 0.9
    assert found["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(codes, places))
    assert found["majority"]["share"] == np.bincount(codes).max() / len(codes)
    assert "auc" not in found


def test_the_majority_and_its_warning() -> None:
    majority = majority_of(np.array([-1, -1, 1, -1]), ("no", "yes"))
    assert majority == Majority("no", 0.75)
    assert majority.is_large and not Majority("no", 0.6).is_large
    assert majority.warning(0.76, 0.5) is None
    assert "'no', which is right in 75.00 %; try" in str(majority.warning(0.75, 0.5))
    told = str(majority.warning(0.7, 0.65))
    assert "by accuracy" in told and "class_weight" not in told, "it may well be set"


def test_of_one_class_alone_there_is_no_baseline() -> None:
    assert Majority("a", 1.0).warning(1.0, 1.0) is None
    assert Majority("a", 0.9).warning(0.9, 0.5) is not None
