"""Columns go by their names, wherever the model knows names: in frames, tables and files."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from bigsvm import cli, load_model
from bigsvm.core.errors import UserError
from bigsvm.models.model import Model
from tests.support.real_table import NAMES, command, magic_table, train_on


@pytest.fixture(scope="module")
def folder(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of a real table, and rows.csv: other rows of it, in another order, with more."""
    folder = tmp_path_factory.mktemp("names")
    train_on(magic_table(data_dir, 1200), folder)
    other = rows_of(data_dir)
    other[["note", *reversed(NAMES), "night", "class"]].to_csv(folder / "rows.csv", index=False)
    other.to_parquet(folder / "rows.parquet")
    return folder


def rows_of(data_dir: Path) -> pd.DataFrame:
    rows = magic_table(data_dir, 500, seed=1)
    notes = [f'shower "{k}", seen twice' for k in range(len(rows))]
    return rows.assign(note=notes, night=pd.Timestamp("2026-11-18"))[[*rows, "note", "night"]]


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return load_model(folder / "run" / "model.safetensors")


def test_a_frame_with_its_columns_reversed_is_predicted_alike(model: Model, data_dir: Path) -> None:
    rows = rows_of(data_dir)
    expected = model.decision_function(rows[NAMES].to_numpy())
    found = model.predict(rows[NAMES])
    assert np.mean(found == rows["class"]) > 0.75, "the model is worth something"
    for given in (rows[list(reversed(NAMES))], rows, pa.Table.from_pandas(rows)):
        assert model.decision_function(given).tobytes() == expected.tobytes()
        assert (model.predict(given) == found).all()


def test_a_frame_without_names_goes_by_position(model: Model, data_dir: Path) -> None:
    rows = rows_of(data_dir)[NAMES].to_numpy()
    expected = model.decision_function(rows)
    assert (model.decision_function(pd.DataFrame(rows)) == expected).all()


def test_missing_and_doubled_columns_are_refused(model: Model, data_dir: Path) -> None:
    rows = rows_of(data_dir)
    with pytest.raises(UserError, match="no column 'fSize', which the model needs; it has 'fLen"):
        model.predict(rows.drop(columns="fSize"))
    doubled = pd.concat([rows, rows[["fSize"]]], axis=1)
    with pytest.raises(UserError, match="column 'fSize' is there twice"):
        model.predict(doubled)


@pytest.mark.parametrize("form", ["csv", "csv.gz", "parquet"])
def test_predict_takes_the_columns_it_knows(
    folder: Path, model: Model, data_dir: Path, tmp_path: Path, form: str,
    capsys: pytest.CaptureFixture,
) -> None:  # fmt: skip
    rows, source = rows_of(data_dir), folder / f"rows.{form}"
    if form == "csv.gz":
        source = tmp_path / "rows.csv.gz"
        rows.to_csv(source, index=False)
    options = ["--label-column", "class"] if form != "csv" else []  # in rows.csv it is the last
    out = tmp_path / "out.csv"
    command("predict", folder / "run/model.safetensors", source, out, *options)
    made = pd.read_csv(out)
    expected = model.decision_function(rows[NAMES].to_numpy())
    np.testing.assert_array_equal(made["decision"], expected)
    right = np.mean(model.labels_of(expected) == rows["class"])
    assert f"accuracy {100 * right:.2f} %" in capsys.readouterr().out


def test_a_file_whose_last_column_is_a_feature_has_no_labels(
    folder: Path, model: Model, data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    rows = rows_of(data_dir)
    rows[["note", *NAMES]].to_csv(tmp_path / "rows.csv", index=False)
    command("predict", folder / "run/model.safetensors", tmp_path / "rows.csv", tmp_path / "o.npy")
    assert (np.load(tmp_path / "o.npy") == model.decision_function(rows)).all()
    assert "accuracy" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: rows.drop(columns="fDist"), "has no column 'fDist', which the model needs"),
        (lambda rows: rows.astype({"fDist": object}).replace({"fDist": {rows.fDist[7]: "far"}}),
         "row 8, column 'fDist': 'far' is not a finite number"),
        (lambda rows: rows.assign(fDist=rows.fDist.where(rows.index != 3)),
         "row 4, column 'fDist': the value is missing"),
        (lambda rows: rows.assign(fDist=rows.fDist.where(rows.index != 3, np.inf)),
         "row 4, column 'fDist': the value is not finite"),
    ],
)  # fmt: skip
def test_bad_values_in_a_chosen_column(
    folder: Path, data_dir: Path, tmp_path: Path, change, words: str,
    capsys: pytest.CaptureFixture,
) -> None:  # fmt: skip
    changed = change(rows_of(data_dir))
    changed[["note", *(name for name in changed if name != "note")]].to_csv(
        tmp_path / "bad.csv", index=False
    )
    asked = ["predict", folder / "run/model.safetensors", tmp_path / "bad.csv", tmp_path / "o.csv"]
    assert cli.main([*map(str, asked), "--no-labels"]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("error:") == 1 and "bad.csv" in error
    assert not (tmp_path / "o.csv").exists()


def test_a_label_that_is_a_feature_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    asked = ["predict", folder / "run/model.safetensors", folder / "rows.csv", tmp_path / "o.csv"]
    assert cli.main([*map(str, asked), "--label-column", "fSize"]) == 2
    assert "'fSize' is a feature of the model" in capsys.readouterr().err
