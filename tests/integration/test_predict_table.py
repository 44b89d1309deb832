"""`predict` on a table: columns passed through, another threshold, standard output."""

import gzip
import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bigsvm import cli, load_model
from bigsvm.models.model import Model
from tests.support.real_table import NAMES, command, magic_table, train_on
from tests.support.trainings import environment


@pytest.fixture(scope="module")
def folder(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of a real table, and rows.csv, rows.parquet: rows with an id and a remark."""
    folder = tmp_path_factory.mktemp("keep")
    train_on(magic_table(data_dir, 800), folder, tolerance=0.1)
    rows = rows_of(data_dir)
    rows.to_csv(folder / "rows.csv", index=False)
    rows.to_parquet(folder / "rows.parquet", row_group_size=170)
    return folder


def rows_of(data_dir: Path) -> pd.DataFrame:
    rows = magic_table(data_dir, 700, seed=1)
    remarks = [f'seen\n"{k}" times, at least' for k in range(len(rows))]
    ids = np.arange(2**60, 2**60 + len(rows))
    return rows.assign(id=ids, remark=remarks)[["id", *NAMES, "remark", "class"]]


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return load_model(folder / "run/model.safetensors")


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("out", ["csv", "parquet"])
def test_kept_columns_stand_beside_their_predictions(
    folder: Path, model: Model, data_dir: Path, tmp_path: Path, form: str, out: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("bigsvm.readers.arrow_batches._TEXT_BYTES", 9000)
    monkeypatch.setattr("bigsvm.prediction.outputs.ROW_GROUP", 300)
    source, made = folder / f"rows.{form}", tmp_path / f"out.{out}"
    model_file = folder / "run/model.safetensors"
    command("predict", model_file, source, made, "--keep", "remark", "--keep", "id", "--quiet")
    table = pd.read_csv(made) if out == "csv" else pd.read_parquet(made)
    rows = rows_of(data_dir)
    assert list(table) == ["row", "remark", "id", "decision", "label"]
    assert table["id"].astype("int64").tolist() == rows["id"].tolist(), "to the last digit"
    assert table["remark"].tolist() == rows["remark"].tolist()
    np.testing.assert_array_equal(table["decision"], model.decision_function(rows))


def test_a_feature_and_the_label_can_be_kept_too(
    folder: Path, data_dir: Path, tmp_path: Path
) -> None:
    asked = ["--keep", "class", "--keep", "fSize"]
    command("predict", folder / "run/model.safetensors", folder / "rows.parquet",
            tmp_path / "o.parquet", *asked)  # fmt: skip
    table = pd.read_parquet(tmp_path / "o.parquet")
    rows = rows_of(data_dir)
    assert (table["class"] == rows["class"]).all() and (table["fSize"] == rows["fSize"]).all()
    assert np.mean(table["label"] == table["class"]) > 0.75


def test_another_threshold(folder: Path, model: Model, data_dir: Path, tmp_path: Path) -> None:
    f = model.decision_function(rows_of(data_dir))
    t = float(np.quantile(f, 0.9))
    command("predict", folder / "run/model.safetensors", folder / "rows.csv", tmp_path / "o.csv",
            "--threshold", repr(t))  # fmt: skip
    table = pd.read_csv(tmp_path / "o.csv")
    assert table["label"].tolist() == np.where(f >= t, "h", "g").tolist()
    assert 60 <= (table["label"] == "h").sum() <= 80


def test_a_threshold_among_probabilities(folder: Path, data_dir: Path, tmp_path: Path) -> None:
    rows, calibrated = folder / "rows.csv", tmp_path / "calibrated.safetensors"
    command("calibrate", folder / "run", "--on", rows, "--out", calibrated)
    asked = ["predict", calibrated, rows, tmp_path / "o.csv", "--probability", "--threshold"]
    command(*asked, "0.3")
    table = pd.read_csv(tmp_path / "o.csv")
    likely = table["probability_h"] >= 0.3
    assert table["label"].tolist() == np.where(likely, "h", "g").tolist()
    assert (table["label"] == "h").sum() > (table["probability_h"] >= 0.5).sum()
    assert cli.main([*map(str, asked), "30", "--overwrite"]) == 2


def test_the_labels_are_where_they_were_in_training(
    folder: Path, data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """In the column of that name, not in the last; a run directory stands for its model."""
    rows = rows_of(data_dir)
    for name, columns in {
        "moved": ["class", *NAMES],
        "more": ["class", *NAMES, "id"],
        "unlabelled": [*NAMES, "id"],
    }.items():
        rows[columns].to_csv(tmp_path / f"{name}.csv", index=False)
        rows[columns].to_parquet(tmp_path / f"{name}.parquet")
    share = {}
    for name in ("moved.csv", "more.csv", "more.parquet", "unlabelled.csv", "unlabelled.parquet"):
        command("predict", folder / "run", tmp_path / name, tmp_path / "o.csv", "--overwrite")
        said = capsys.readouterr().out
        share[name] = said.partition("accuracy ")[2].partition(" %")[0]
    assert len({share[name] for name in share if "unlabelled" not in name}) == 1
    assert float(share["moved.csv"]) > 75 and share["unlabelled.csv"] == ""
    assert share["unlabelled.parquet"] == ""
    asked = ["calibrate", folder / "run", "--on", tmp_path / "unlabelled.csv"]
    assert cli.main([*map(str, asked)]) == 2
    words = "has no column 'class', which held the labels in training; --label-column names another"
    assert words in capsys.readouterr().err


def test_standard_output_is_csv_and_nothing_else(folder: Path, tmp_path: Path) -> None:
    model_file = folder / "run/model.safetensors"
    command("predict", model_file, folder / "rows.csv", tmp_path / "o.csv", "--keep", "id")
    done = subprocess.run(
        [sys.executable, "-m", "bigsvm", "predict", model_file, folder / "rows.csv", "-",
         "--keep", "id"],
        env=environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == (tmp_path / "o.csv").read_text()
    assert "700 rows" in done.stderr and "written to standard output" in done.stderr
    assert len(pd.read_csv(io.StringIO(done.stdout))) == 700


def test_a_reader_that_leaves_early_is_no_error(folder: Path) -> None:
    line = f"'{sys.executable}' -m bigsvm predict '{folder}/run/model.safetensors' "
    line += f"'{folder}/rows.csv' - --quiet | head -2"
    done = subprocess.run(
        ["sh", "-c", line], env=environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[0] == "row,decision,label" and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["rows.csv", "o.csv", "--keep", "name"], "--keep name: "),
        (["rows.csv", "o.csv", "--keep", "id", "--keep", "id"], "--keep id: is given twice"),
        (["rows.csv", "o.npy", "--keep", "id"], "o.npy has no columns; write *.csv or *.parquet"),
        (["rows.csv", "o.csv", "--keep", "label"], "have a column 'label' of their own"),
        (["table.zarr", "o.csv", "--keep", "id"], "--keep: does not apply to a store"),
        (["bare.csv", "o.csv", "--keep", "id"], "the columns of bare.csv have no names"),
        (["cut.csv.gz", "o.csv", "--keep", "id"], "cut.csv.gz"),
        (["rows.csv", "o.csv", "--threshold", "nan"], "--threshold nan: must be a finite number"),
        (["rows.csv", "o.csv", "--threshold", "high"], "--threshold"),
    ],
)
def test_mistakes(
    folder: Path, data_dir: Path, options: list[str], words: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.chdir(folder)
    rows = rows_of(data_dir)
    rows[[*NAMES, "class"]].to_csv("bare.csv", index=False, header=False)
    Path("cut.csv.gz").write_bytes(gzip.compress(rows.to_csv(index=False).encode())[:-2000])
    assert cli.main(["predict", "run/model.safetensors", *options]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("error:") == 1 and "Traceback" not in error
    assert not list(folder.glob("o.*"))


def test_a_threshold_is_for_two_classes(
    data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    command("prepare", data_dir / "iris.data", tmp_path / "i.zarr", "--quiet")
    text = f"data: {{train: {tmp_path}/i.zarr}}\nmodel: {{kernel: {{gamma: 1}}}}"
    (tmp_path / "i.yaml").write_text(text)
    command("train", tmp_path / "i.yaml", "--run-dir", tmp_path / "run")
    asked = [tmp_path / "run/model.safetensors", data_dir / "iris.data", tmp_path / "o.csv"]
    assert cli.main(["predict", *map(str, asked), "--threshold", "1"]) == 2
    assert "--threshold: is for two classes, and the model has 3" in capsys.readouterr().err


def test_a_folder_and_a_pattern_of_parts(folder: Path, data_dir: Path, tmp_path: Path) -> None:
    rows = rows_of(data_dir)
    (tmp_path / "parts").mkdir()
    rows[:300].to_parquet(tmp_path / "parts/1.parquet")
    rows[300:][rows.columns[::-1]].to_csv(tmp_path / "parts/2.csv", index=False)
    whole, made = tmp_path / "whole.parquet", tmp_path / "made.parquet"
    command("predict", folder / "run", folder / "rows.parquet", whole, "--keep", "id")
    command("predict", folder / "run", tmp_path / "parts", made, "--keep", "id")
    pd.testing.assert_frame_equal(pd.read_parquet(made), pd.read_parquet(whole))
    command("predict", folder / "run", tmp_path / "parts/[12].*", made, "--keep", "id",
            "--overwrite")  # fmt: skip
    assert made.read_bytes() == whole.read_bytes()
    command("calibrate", folder / "run", "--on", tmp_path / "parts", "--out",
            tmp_path / "c.safetensors")  # fmt: skip


def test_kept_columns_of_other_types_in_other_parts(
    folder: Path, data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    rows = rows_of(data_dir)
    (tmp_path / "parts").mkdir()
    rows[:300].to_parquet(tmp_path / "parts/1.parquet")
    rows[300:].assign(id="x").to_parquet(tmp_path / "parts/2.parquet")
    asked = ["predict", str(folder / "run"), str(tmp_path / "parts"), str(tmp_path / "o.csv")]
    assert cli.main([*asked, "--keep", "id"]) == 2
    assert "parts have other types in other files" in capsys.readouterr().err
    assert not (tmp_path / "o.csv").exists()


def test_a_new_category_is_a_choice_at_prediction_too(
    data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    table = magic_table(data_dir, 600)
    table["kind"] = table["fAlpha"].gt(20).map({True: "wide", False: "narrow"})
    table.to_csv(tmp_path / "t.csv", index=False)
    command("prepare", tmp_path / "t.csv", tmp_path / "t.zarr", "--label-column", "class",
            "--categorical", "kind")  # fmt: skip
    command("init", tmp_path / "t.zarr", "--out", tmp_path / "t.yaml")
    command("train", tmp_path / "t.yaml", "--run-dir", tmp_path / "run")
    table.loc[5, "kind"] = "round"
    table.to_csv(tmp_path / "new.csv", index=False)
    asked = ["predict", str(tmp_path / "run"), str(tmp_path / "new.csv"), str(tmp_path / "o.csv")]
    assert cli.main(asked) == 2
    error = capsys.readouterr().err
    assert "no training row has 'round'; correct it, or prepare or predict with --unseen" in error
    command(*asked, "--unseen", "ignore")
    assert len(pd.read_csv(tmp_path / "o.csv")) == 600


def test_rare_positives_are_not_judged_by_accuracy_alone(
    folder: Path, data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    rows = rows_of(data_dir)
    rare = pd.concat([rows[rows["class"] == "g"][:390], rows[rows["class"] == "h"][:10]])
    rare.to_csv(tmp_path / "rare.csv", index=False)
    capsys.readouterr()
    command("predict", folder / "run", tmp_path / "rare.csv", tmp_path / "o.csv")
    said = capsys.readouterr()
    found = pd.read_csv(tmp_path / "o.csv")["label"].to_numpy() == rare["class"].to_numpy()
    of_each = (found[:390].mean() + found[390:].mean()) / 2
    assert f"accuracy {100 * found.mean():.2f} %, balanced {100 * of_each:.2f} %; " in said.out
    assert "warning: no better than always predicting 'g', which is right in 97.50 %" in said.err
