"""`predict` end to end: the same decision values from any input into any output."""

import csv
import shutil
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

from bigsvm import BigSVC
from bigsvm.core.errors import UserError
from bigsvm.models.model import Model, load_model
from bigsvm.predict import main
from bigsvm.predict import predict as bigsvm_predict
from bigsvm.prediction import outputs as predictions
from bigsvm.preparation.synthetic import synthetic_reader
from bigsvm.stores.store import open_dataset
from tests.support import small_run
from tests.support.small_run import make_model, make_store
from tests.support.trainings import HANGS, wait_until


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """s.zarr (train and test), model.safetensors; raw.csv, raw.npy: raw rows with labels."""
    folder = tmp_path_factory.mktemp("predict")
    store = make_store(folder / "s.zarr", rows=600)
    make_model(store, 10, 120).save(folder / "model.safetensors")
    X, y = raw_rows()
    np.save(folder / "raw.npy", np.column_stack([X, y]))
    lines = [",".join(map(repr, row)) for row in np.column_stack([X, y]).tolist()]
    (folder / "raw.csv").write_text("a,b,c,d,e,class\n" + "\n".join(lines) + "\n")
    return folder


def raw_rows(rows: int = 2500) -> tuple[np.ndarray, np.ndarray]:
    batches = list(synthetic_reader(rows, 5, 0.1, 3).batches())
    return np.concatenate([b.x for b in batches]), np.concatenate([b.y for b in batches])


def model_in(folder: Path) -> Model:
    return load_model(folder / "model.safetensors")


def predict(folder: Path, source: object, out: object, *options: object) -> None:
    argv = [folder / "model.safetensors", source, out, *options]
    assert main([str(argument) for argument in argv]) == 0


def refused(folder: Path, source: object, out: Path, *options: object) -> str:
    with pytest.raises(UserError) as mistake:
        predict(folder, source, out, *options)
    assert "\n" not in str(mistake.value)
    assert not [path for path in out.parent.glob(".*")]
    return str(mistake.value)


def test_units_of_the_margin(folder: Path, tmp_path: Path) -> None:
    """As `BigSVC` has them; the threshold is in the units of the output."""
    X, y = raw_rows(300)
    estimator = BigSVC(sigma=1.0).fit(X, y)
    saved = estimator.to_model()
    shutil.copy(folder / "raw.csv", tmp_path)
    raw = replace(saved, dual_coef=saved.dual_coef / 512, about={"margin": 1 / 512})
    many = replace(
        raw, dual_coef=np.stack([raw.dual_coef, -raw.dual_coef, raw.dual_coef]), classes=(-1, 0, 1)
    )
    expected = estimator.decision_function(raw_rows()[0])
    for name, model in {"of BigSVC": saved, "of a run": raw, "many": many}.items():
        model.save(tmp_path / "model.safetensors")
        for units in ("raw", "margin"):
            out = tmp_path / f"{name} {units}.npy"
            predict(tmp_path, tmp_path / "raw.csv", out, "--units", units)
    assert np.load(tmp_path / "of BigSVC raw.npy").tobytes() == expected.tobytes()
    for name in ("of BigSVC", "of a run"):
        np.testing.assert_array_equal(np.load(tmp_path / f"{name} margin.npy"), expected)
    np.testing.assert_array_equal(np.load(tmp_path / "of a run raw.npy"), expected / 512)
    np.testing.assert_array_equal(np.load(tmp_path / "many margin.npy")[:, 1], -expected)
    raw.save(tmp_path / "model.safetensors")
    cut = float(np.median(expected))
    options = ("--units", "margin", "--threshold", cut)
    predict(tmp_path, tmp_path / "raw.csv", tmp_path / "cut.csv", *options)
    with (tmp_path / "cut.csv").open() as file:
        labels = [float(row["label"]) for row in csv.DictReader(file)]
    assert labels == np.where(expected >= cut, 1, -1).tolist()


def test_a_model_without_its_margin(folder: Path, tmp_path: Path) -> None:
    told = refused(folder, folder / "raw.csv", tmp_path / "out.csv", "--units", "margin")
    assert "does not have its margin" in told and "--units raw" in told


def test_csv_has_row_decision_and_label(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    out = tmp_path / "out.csv"
    predict(folder, folder / "raw.csv", out)
    X, y = raw_rows()
    expected = model_in(folder).decision_function(X)
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["row", "decision", "label"]
    assert [int(row["row"]) for row in rows] == list(range(2500))
    assert np.array([float(row["decision"]) for row in rows]).tobytes() == expected.tobytes()
    labels = np.where(expected >= 0, 1, -1)
    assert [row["label"] for row in rows] == [str(label) for label in labels]
    right = f"{100 * np.mean(labels == y):.2f} %"
    assert 60 < 100 * np.mean(labels == y) < 99
    below, above = np.count_nonzero(labels < 0), np.count_nonzero(labels > 0)
    shown = capsys.readouterr().out
    assert shown.splitlines() == [
        f"{folder / 'raw.csv'}: 2,500 rows; -1 {below:,}, 1 {above:,}; accuracy {right}; "
        f"written to {out}"
    ]


def test_parquet_and_npy_hold_the_same(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predictions, "ROW_GROUP", 100)
    expected = model_in(folder).decision_function(raw_rows()[0])
    for name in ("out.parquet", "out.npy"):
        predict(folder, folder / "raw.npy", tmp_path / name, "--quiet")
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.column_names == ["row", "decision", "label"]
    assert table["row"].to_pylist() == list(range(2500))
    assert table["label"].to_pylist() == np.where(expected >= 0, 1, -1).tolist()
    decisions = np.load(tmp_path / "out.npy")
    assert decisions.dtype == np.float64 and decisions.shape == (2500,)
    assert decisions.tobytes() == expected.tobytes() == table["decision"].to_numpy().tobytes()


@pytest.mark.parametrize("classes", [(-1, 1), ("a \u00fc", "signal"), (0.5, 2.5)])
@pytest.mark.parametrize("chunk", [100, 833, 2500, 10_000])
def test_zarr_holds_the_same(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, classes: tuple
) -> None:
    model = make_model(folder / "s.zarr", 1, 50, classes=classes)
    model.save(tmp_path / "model.safetensors")
    monkeypatch.setattr(predictions, "ROW_GROUP", chunk)
    monkeypatch.setattr("bigsvm.readers.BATCH_BYTES", 8 * 6 * 300)
    np.save(tmp_path / "rows.npy", raw_rows()[0])
    predict(tmp_path, tmp_path / "rows.npy", tmp_path / "out.zarr", "--no-labels", "--quiet")
    expected = model.decision_function(raw_rows()[0])
    made = zarr.open_group(tmp_path / "out.zarr", mode="r")
    assert made["decision"].chunks == (chunk,)
    assert made["decision"][:].tobytes() == expected.tobytes()
    assert made["label"][:].tolist() == model.labels_of(expected).tolist()


def test_a_zarr_output_replaces_only_what_it_may(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.zarr"
    predict(folder, folder / "raw.csv", out)
    assert "--overwrite" in refused(folder, folder / "raw.csv", out)
    (out / "kept").write_text("")
    (tmp_path / "bad.csv").write_text("1,2,3,4,5,1\n1,2,x,4,5,1\n")
    refused(folder, tmp_path / "bad.csv", out, "--overwrite")
    assert (out / "kept").exists()
    predict(folder, folder / "raw.csv", out, "--overwrite")
    assert not (out / "kept").exists()
    assert zarr.open_group(out, mode="r")["decision"].shape == (2500,)
    store = make_store(tmp_path / "mine.zarr", rows=300)
    assert "contains the input" in refused(folder, store / "test", store, "--overwrite")
    assert (store / "test").is_dir()
    (tmp_path / "folder.zarr").mkdir()
    assert "is a folder" in refused(
        folder, folder / "raw.csv", tmp_path / "folder.zarr", "--overwrite"
    )


def test_the_progress_knows_the_end_where_the_file_tells(folder: Path, tmp_path: Path) -> None:
    X, y = raw_rows(500)
    pq.write_table(
        pa.table({**{str(k): X[:, k] for k in range(5)}, "class": y}), tmp_path / "rows.parquet"
    )
    for source, total in ((tmp_path / "rows.parquet", 500), (folder / "raw.csv", None)):
        seen = []
        bigsvm_predict(
            folder / "model.safetensors",
            source,
            tmp_path / f"{source.suffix}.npy".lstrip("."),
            progress=lambda what, done, total, seen=seen: seen.append((done, total)),
        )
        assert seen[-1] == (total or 2500, total)


def test_text_labels_and_many_batches(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(folder / "s.zarr", 1, 50, classes=('a "quoted", label', "signal"))
    model.save(tmp_path / "model.safetensors")
    monkeypatch.setattr("bigsvm.readers.BATCH_BYTES", 8 * 6 * 100)
    np.save(tmp_path / "rows.npy", raw_rows()[0])
    for name in ("out.csv", "out.parquet"):
        predict(tmp_path, tmp_path / "rows.npy", tmp_path / name, "--no-labels")
    expected = model.predict(raw_rows()[0]).tolist()
    assert set(expected) == set(model.classes)
    with (tmp_path / "out.csv").open(newline="") as file:
        assert [row["label"] for row in csv.DictReader(file)] == expected
    assert pq.read_table(tmp_path / "out.parquet")["label"].to_pylist() == expected


def test_a_prepared_store_is_not_scaled_again(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    for part in ("test", "train"):
        with open_dataset(folder / "s.zarr", part) as data:
            expected = model_in(folder).decision_function(data.read(0, data.n), scaled=True)
            right = np.mean((expected >= 0) == (data.labels() > 0))
        predict(folder, folder / "s.zarr" / part, tmp_path / f"{part}.npy")
        assert np.load(tmp_path / f"{part}.npy").tobytes() == expected.tobytes()
        shown = capsys.readouterr().out
        assert f"s.zarr/{part}: {len(expected)} rows" in shown
        assert f"accuracy {100 * right:.2f} %" in shown
    predict(folder, folder / "s.zarr", tmp_path / "default.npy")
    assert (tmp_path / "default.npy").read_bytes() == (tmp_path / "test.npy").read_bytes()


def test_raw_rows_in_a_store_are_scaled(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    X, y = raw_rows()
    expected = model_in(folder).decision_function(X.astype(np.float32))
    with h5py.File(tmp_path / "own.h5", "w") as file:
        file["inner/rows"], file["inner/truth"] = X.astype(np.float32), y
    with h5py.File(tmp_path / "usual.h5", "w") as file:
        file["X"] = X.astype(np.float32)
    predict(folder, tmp_path / "usual.h5", tmp_path / "a.npy")
    assert "accuracy" not in capsys.readouterr().out
    predict(folder, tmp_path / "own.h5", tmp_path / "b.npy", "--x", "inner/rows")
    assert "accuracy" not in capsys.readouterr().out
    predict(folder, tmp_path / "own.h5/inner", tmp_path / "c.npy", "--x", "rows", "--y", "truth")
    right = np.mean((expected >= 0) == (y > 0))
    assert f"accuracy {100 * right:.2f} %" in capsys.readouterr().out
    unscaled = make_store(tmp_path / "none.zarr", rows=300, scaling="none")
    predict(folder, unscaled, tmp_path / "d.npy")
    with open_dataset(unscaled, "test") as data:
        also = model_in(folder).decision_function(data.read(0, data.n))
    for name, values in (("a", expected), ("b", expected), ("c", expected), ("d", also)):
        assert np.load(tmp_path / f"{name}.npy").tobytes() == values.tobytes()


def test_another_scaling_is_refused(folder: Path, tmp_path: Path) -> None:
    other = make_store(tmp_path / "minmax.zarr", rows=300, scaling="minmax")
    message = refused(folder, other, tmp_path / "out.csv")
    assert "minmax" in message and "standard" in message
    assert not (tmp_path / "out.csv").exists()


def test_libsvm_rows_may_leave_out_the_last_features(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.libsvm").write_text("+1 1:0.5 2:1\n-1 3:-1\n")
    predict(folder, tmp_path / "rows.libsvm", tmp_path / "out.npy")
    X = np.array([[0.5, 1, 0, 0, 0], [0, 0, -1, 0, 0]])
    expected = model_in(folder).decision_function(X)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected)


def test_reading_options_are_those_of_prepare(folder: Path, tmp_path: Path) -> None:
    X, y = raw_rows(50)
    rows = np.column_stack([y, X]).tolist()
    text = "\n".join(";".join(map(repr, row)) for row in rows)
    (tmp_path / "rows.txt").write_text("class;1;2;3;4;5\n" + text)
    options = ("--format", "csv", "--header", "yes", "--delimiter", ";", "--label-column")
    predict(folder, tmp_path / "rows.txt", tmp_path / "out.npy", *options, "class")
    expected = model_in(folder).decision_function(X)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected)
    predict(folder, tmp_path / "rows.txt", tmp_path / "out2.npy", *options, "0")
    np.testing.assert_array_equal(np.load(tmp_path / "out2.npy"), expected)


def test_columns_go_by_their_names(folder: Path, tmp_path: Path) -> None:
    model = model_in(folder)
    named = replace(model, about={**model.about, "feature_names": list("abcde")})
    named.save(tmp_path / "model.safetensors")
    X, y = raw_rows(50)
    order = [3, 0, 4, 2, 1]
    columns = {"abcde"[k]: X[:, k] for k in order} | {"class": y}
    pq.write_table(pa.table(columns), tmp_path / "raw.parquet")
    lines = [",".join(map(repr, row)) for row in np.column_stack([X[:, order], y]).tolist()]
    (tmp_path / "raw.csv").write_text("d,a,e,c,b,class\n" + "\n".join(lines) + "\n")
    expected = model.decision_function(X)
    for form in ("parquet", "csv"):
        predict(tmp_path, tmp_path / f"raw.{form}", tmp_path / f"{form}.npy")
        np.testing.assert_array_equal(np.load(tmp_path / f"{form}.npy"), expected)


def test_wrong_number_of_features_names_both(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    np.save(tmp_path / "rows.npy", raw_rows(20)[0])
    message = refused(folder, tmp_path / "rows.npy", out)
    assert "4 features" in message and "5" in message and "--no-labels" in message
    message = refused(folder, folder / "raw.csv", out, "--no-labels")
    assert "6 features" in message and "labels" in message
    wide = make_store(tmp_path / "wide.zarr", rows=300, features=8)
    assert "8 features" in refused(folder, wide, out)


def test_mistakes_are_told_and_nothing_is_left(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    assert "no such file or store" in refused(folder, tmp_path / "none.csv", out)
    assert "no such store" in refused(folder, tmp_path / "none.zarr", out)
    assert ".csv" in refused(folder, folder / "raw.csv", tmp_path / "out.txt")
    assert "no folder" in refused(folder, folder / "raw.csv", tmp_path / "no" / "out.csv")
    assert "--x" in refused(folder, folder / "raw.csv", out, "--x", "X")
    assert "--label-column" in refused(folder, folder / "s.zarr", out, "--label-column", "1")
    (tmp_path / "bad.csv").write_text("1,2,3,4,5,1\n1,2,3,4,5,-1\n1,2,x,4,5,1\n")
    assert "bad.csv" in refused(folder, tmp_path / "bad.csv", out)
    (tmp_path / "other.csv").write_text("1,2,3,4,5,yes\n1,2,3,4,5,no\n")
    assert "neither -1 nor 1" in refused(folder, tmp_path / "other.csv", out)
    with h5py.File(tmp_path / "nan.h5", "w") as file:
        file["X"] = np.where(np.eye(9, 5) > 0, np.nan, 1.0)
    assert "row 0, column 0" in refused(folder, tmp_path / "nan.h5", out)
    (tmp_path / "far.csv").write_text("1,2,3,4,5,1\n1,2,3,4,1e200,-1\n")
    assert "row 1, column 4" in refused(folder, tmp_path / "far.csv", out)
    assert not out.exists()


def test_an_output_is_kept_unless_told_otherwise(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    out.write_text("precious")
    assert "--overwrite" in refused(folder, folder / "raw.csv", out)
    (tmp_path / "bad.csv").write_text("1,2,3,4,5,1\n1,2,x,4,5,1\n")
    refused(folder, tmp_path / "bad.csv", out, "--overwrite")
    assert out.read_text() == "precious"
    predict(folder, folder / "raw.csv", out, "--overwrite")
    assert out.read_text().startswith("row,decision,label\n0,")
    before = (folder / "raw.csv").read_bytes()
    refused(folder, folder / "raw.csv", folder / "raw.csv", "--overwrite")
    assert (folder / "raw.csv").read_bytes() == before


def test_what_a_killed_one_left_is_removed(folder: Path, tmp_path: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    (tmp_path / f".out[1].csv.{dead.pid}.tmp").write_text("half")
    others = [f".out2.csv.{dead.pid}.tmp", ".out[1].csv.1.tmp", ".out[1].csv.mine.tmp"]
    for name in others:
        (tmp_path / name).write_text("precious")
    predict(folder, folder / "raw.csv", tmp_path / "out[1].csv")
    assert {path.name for path in tmp_path.iterdir()} == {"out[1].csv", *others}


def test_as_a_command(folder: Path, tmp_path: Path) -> None:
    arguments = (folder / "model.safetensors", folder / "raw.csv", tmp_path / "out.csv")
    code, out, err = small_run.run("bigsvm.predict", *arguments)
    assert code == 0 and out.count("\n") == 1 and "accuracy" in out and "error" not in err
    code, out, err = small_run.run("bigsvm.predict", *arguments)
    assert code == 2 and out == "" and err.startswith("error: ") and err.count("\n") == 1


def test_terminated_in_the_middle_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    """Many rows against many support vectors take long enough to be cut off on the way."""
    store = make_store(tmp_path / "big.zarr", rows=60_000, chunk_rows=2000)
    make_model(store, 1, 40_000).save(tmp_path / "m.safetensors")
    place = tmp_path / "place"
    place.mkdir()
    process = small_run.start(
        "bigsvm.predict", tmp_path / "m.safetensors", store / "train", place / "out.csv"
    )
    try:
        wait_until(lambda: any(place.iterdir()), process)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=HANGS)
    finally:
        process.kill()
    assert process.returncode == 128 + signal.SIGTERM and "Traceback" not in err
    assert not any(place.iterdir())
