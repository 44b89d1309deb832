"""A column of weights, from a file into the store and into the training."""

import json
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
import zarr

from bigsvm import BigSVC, cli, load_model
from bigsvm.config import PrepareOptions
from bigsvm.core.errors import UserError
from bigsvm.inspect import inspect
from bigsvm.predict import main as predict
from bigsvm.preparation.pipeline import prepare
from bigsvm.prepare import main
from bigsvm.stores.store import open_dataset
from bigsvm.train import main as train


@pytest.fixture
def table() -> pd.DataFrame:
    """200 rows; their first feature tells their weight."""
    random = np.random.default_rng(0)
    table = pd.DataFrame(random.normal(size=(200, 3)), columns=["a", "b", "c"])
    table["a"] = np.arange(200.0)
    table.insert(1, "importance", table["a"] / 8)
    table["kind"] = np.where(table["b"] > table["c"], 1, 0)
    return table


def written(table: pd.DataFrame, folder: Path, form: str) -> Path:
    path = folder / f"mine.{form}"
    if form == "parquet":
        table.to_parquet(path)
    elif form == "npy":
        np.save(path, table.to_numpy(float))
    else:
        table.to_csv(path, index=False, sep="\t" if form == "tsv" else ",")
    return path


@pytest.mark.parametrize("store", ["s.zarr", "s.h5"])
@pytest.mark.parametrize("form", ["csv", "tsv", "parquet", "npy"])
def test_a_weight_stays_with_its_row(
    table: pd.DataFrame, tmp_path: Path, form: str, store: str
) -> None:
    column = 1 if form == "npy" else "importance"
    options = PrepareOptions(
        weight_column=column, test_rows=50, drop_value=7, chunk_rows=30, scaling="none"
    )
    table.loc[3, ["a", "b", "c"]] = 7  # a row that is left out
    summary = prepare(written(table, tmp_path, form), tmp_path / store, options)
    assert "model.sample_weight=weight" in str(summary)
    names = None if form == "npy" else ["a", "b", "c"]
    for part, n in (("train", 149), ("test", 50)):
        with open_dataset(tmp_path / store, part) as data:
            assert (data.n, data.d, data.feature_names) == (n, 3, names)
            np.testing.assert_array_equal(data.read_vector("weight"), data.read(0, n)[:, 0] / 8)
    facts = inspect(tmp_path / store / "train")
    assert 0 <= facts["weight"]["smallest"] < 2 and 23 < facts["weight"]["largest"] < 25


def test_the_command_the_training_and_the_estimator(table: pd.DataFrame, tmp_path: Path) -> None:
    store, run = tmp_path / "s.zarr", tmp_path / "run"
    source = written(table.iloc[:, ::-1], tmp_path, "csv")  # the label comes first
    options = ["--label-column", "kind", "--weight-column", "-2", "--scaling", "none", "--quiet"]
    assert cli.run(main, [str(source), str(store), *options]) == 0
    config = {
        "data": {"train": str(store)},
        "model": {"sample_weight": "weight", "kernel": {"name": "rbf", "sigma": 3}},
    }
    (tmp_path / "c.yaml").write_text(json.dumps(config))
    train([str(tmp_path / "c.yaml"), "--run-dir", str(run), "--set", "model.algorithm=fw"])
    weight = zarr.open_array(store / "train" / "weight", mode="r")
    svc = BigSVC(sigma=3, algorithm="fw").fit(store, sample_weight=weight)
    plain = BigSVC(sigma=3, algorithm="fw").fit(store)
    model = load_model(run / "model.safetensors")
    assert 0 not in model.support_index  # of weight 0
    found, expected = model.decision_function(store_rows(store)), svc.decision_function(store)
    unit = np.median(found / expected)  # theirs is the margin
    np.testing.assert_allclose(found / unit, expected, atol=0.02)
    assert np.abs(plain.decision_function(store) - expected).max() > 0.1


@pytest.mark.parametrize("form", ["csv", "parquet", "npy"])
def test_predict_leaves_weights_out(table: pd.DataFrame, tmp_path: Path, form: str) -> None:
    X, y = table[["a", "b", "c"]].to_numpy(), table["kind"]
    BigSVC().fit(X, y).to_model().save(tmp_path / "m.safetensors")
    expected = load_model(tmp_path / "m.safetensors").decision_function(X)
    labelled = table[["kind", "a", "importance", "b", "c"]]
    for rows, options in (
        (labelled, ["--weight-column", "2", "--label-column", "0"]),
        (labelled.drop(columns="kind"), ["--weight-column", "1", "--no-labels"]),
        (labelled.drop(columns="kind"), ["--weight-column", "-3", "--no-labels"]),
    ):
        asked = tmp_path / "m.safetensors", written(rows, tmp_path, form), tmp_path / "out.npy"
        assert cli.run(predict, [*map(str, asked), *options, "--overwrite", "--quiet"]) == 0
        np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected)


def store_rows(store: Path) -> np.ndarray:
    with open_dataset(store) as data:
        return data.read(0, data.n)


@pytest.mark.parametrize(
    ("value", "form", "said"),
    [
        (-0.5, "csv", r"mine.csv, line 7, column 2 \('importance'\): -0.5 is no weight"),
        (-0.5, "parquet", r"mine.parquet, row 6, column 2 \('importance'\): -0.5 is no weight"),
        (-0.5, "npy", r"mine.npy, row 6, column 2: -0.5 is no weight; a weight is 0, or from"),
        (1e30, "csv", r"line 7, column 2 \('importance'\): 1e\+30 is no weight"),
        (np.inf, "csv", r"line 7, column 2 \('importance'\): 'inf' is not finite"),
        (np.nan, "csv", r"line 7, column 2 \('importance'\): the value is missing"),
        (np.nan, "npy", r"mine.npy, row 6, .*nan"),
        (np.nan, "parquet", r"row 6, column 'importance': the value is missing"),
    ],
)
def test_what_is_no_weight_is_told_with_its_place(
    table: pd.DataFrame, tmp_path: Path, value: float, form: str, said: str
) -> None:
    table.loc[5, "importance"] = value
    options = PrepareOptions(weight_column=1)
    with pytest.raises(UserError, match=said):
        prepare(written(table, tmp_path, form), tmp_path / "s.zarr", options)
    assert not (tmp_path / "s.zarr").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"weight_column": "weight"}, r"no column 'weight' for the weights; it has 'a', 'imp"),
        ({"weight_column": 9}, "no column 9 for the weights; it has 5, counted from 0"),
        ({"weight_column": "kind"}, "'kind' holds the labels, not weights; name the column of"),
        ({"weight_column": -1}, "column -1 holds the labels"),
        ({"weight_column": 1, "features": 4}, "3 features in it where 4 are expected"),
    ],
)
def test_a_column_that_is_not_there(
    table: pd.DataFrame, tmp_path: Path, options: dict, said: str
) -> None:
    with pytest.raises(UserError, match=said):
        prepare(written(table, tmp_path, "csv"), tmp_path / "s.zarr", PrepareOptions(**options))


def test_files_without_columns_have_none(tmp_path: Path) -> None:
    (tmp_path / "a.libsvm").write_text("1 1:2\n-1 1:3\n")
    np.savez(tmp_path / "a.npz", X=np.eye(4), y=np.arange(4) % 2)
    for source in (tmp_path / "a.libsvm", tmp_path / "a.npz", "synthetic"):
        with pytest.raises(UserError, match=r"no columns to take weights from|has no weights"):
            prepare(source, tmp_path / "s.zarr", PrepareOptions(weight_column=1))


def test_weights_that_were_changed_are_noticed(table: pd.DataFrame, tmp_path: Path) -> None:
    options = PrepareOptions(weight_column="importance")
    prepare(written(table, tmp_path, "csv"), tmp_path / "s.h5", options)
    with h5py.File(tmp_path / "s.h5", "r+") as file:
        file["train/weight"][17] += 1
    with (
        open_dataset(tmp_path / "s.h5") as data,
        pytest.raises(UserError, match="weight is not what was written"),
    ):
        data.read_vector("weight")
