"""Tables as they are: several files, text columns, gaps; prepared, trained on, predicted."""

import io
import json
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import onnxruntime
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pytest

from bigsvm import cli, load_model
from bigsvm.core.errors import UserError
from bigsvm.stores.store import open_dataset
from bigsvm.tables.encoding import Column, Encoding
from tests.support.real_table import NAMES, command, magic_table
from tests.support.trainings import environment


def messy(data_dir: Path, rows: int = 600, seed: int = 0) -> pd.DataFrame:
    """A real table with an id, a text column that helps, true and false, and gaps."""
    table = magic_table(data_dir, rows, seed)
    draw = np.random.default_rng(seed)
    angle = pd.cut(table["fAlpha"], [-1, 10, 30, 91], labels=["narrow", "half, open", "wide"])
    table = table.assign(id=[f"e{k}" for k in range(rows)], angle=angle.astype(str))
    table["long"] = table["fLength"] > 40
    table.loc[draw.uniform(size=rows) < 0.1, "fWidth"] = np.nan
    table.loc[draw.uniform(size=rows) < 0.05, "angle"] = None
    return table[["id", *NAMES, "angle", "long", "class"]]


OPTIONS = ["--label-column", "class", "--ignore", "id", "--categorical", "auto", "--missing",
           "indicator", "--scaling", "none", "--quiet"]  # fmt: skip


def rows_of(store: Path, part: str = "train") -> tuple[np.ndarray, list[str], np.ndarray]:
    with open_dataset(store / part if part else store, part) as data:
        return data.read(0, data.n), data.feature_names or [], data.labels()


def expected_rows(table: pd.DataFrame) -> np.ndarray:
    width = table["fWidth"]
    columns = [table[name] for name in NAMES]
    columns[1:2] = [width.fillna(width.mean()), width.isna()]
    angle = table["angle"].where(table["angle"].notna(), "(missing)")
    columns += [angle == value for value in ("half, open", "narrow", "wide", "(missing)")]
    return np.column_stack([*columns, table["long"]]).astype(np.float64)


@pytest.mark.parametrize("form", ["csv", "parquet", "feather", "csv.gz", "dictionary"])
def test_a_messy_table_becomes_numbers(data_dir: Path, tmp_path: Path, form: str) -> None:
    table = messy(data_dir)
    path = tmp_path / f"t.{form}"
    if form == "parquet":
        table.to_parquet(path)
    elif form == "dictionary":
        table.astype({"angle": "category"}).to_parquet(path)
    elif form == "feather":
        pyarrow.feather.write_feather(table, path)
    else:
        table.to_csv(path, index=False)
    command("prepare", path, tmp_path / "t.zarr", *OPTIONS)
    x, names, codes = rows_of(tmp_path / "t.zarr")
    assert names[1:3] == ["fWidth", "fWidth (missing)"]
    assert names[-5:] == [
        "angle=half, open", "angle=narrow", "angle=wide", "angle=(missing)", "long",
    ]  # fmt: skip
    np.testing.assert_allclose(x, expected_rows(table), rtol=1e-6)
    assert (np.where(codes > 0, "h", "g") == table["class"]).all()


def test_several_files_patterns_folders_and_standard_input_are_the_same(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table = messy(data_dir)
    Path("parts").mkdir()
    cuts = [table[:200], table[200:201], table[201:]]
    for k, part in enumerate(cuts):
        columns = list(part) if k != 2 else [*reversed(list(part)[:-1]), "class"]
        part[columns].to_csv(f"parts/p{k}.csv", index=False)
    Path("parts/_SUCCESS").touch()
    Path("parts/.crc.csv").write_text("x")
    table.to_csv("whole.csv", index=False)
    command("prepare", "whole.csv", "whole.zarr", *OPTIONS)
    expected = rows_of(Path("whole.zarr"))
    command("prepare", "parts/p0.csv", "parts/p1.csv", "parts/p2.csv", "a.zarr", *OPTIONS)
    command("prepare", "parts/p*.csv", "b.zarr", *OPTIONS)
    command("prepare", "parts", "c.zarr", *OPTIONS)
    done = subprocess.run(
        [sys.executable, "-m", "bigsvm", "prepare", "-", "d.zarr", *OPTIONS],
        input=Path("whole.csv").read_bytes(), env=environment(), capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for name in "abcd":
        found = rows_of(Path(f"{name}.zarr"))
        np.testing.assert_array_equal(found[0], expected[0])
        assert found[1] == expected[1] and (found[2] == expected[2]).all()
    with open_dataset(Path("d.zarr")) as data:
        assert data.source == "standard input"
    refused = subprocess.run(
        [sys.executable, "-m", "bigsvm", "prepare", "-", "e.zarr", "--label-column", "class"],
        input=b"a,b,class\n1,x,1\n", env=environment(), capture_output=True,
    )  # fmt: skip
    assert refused.returncode == 2
    assert refused.stderr.startswith(b"error: standard input, line 2, column 2 ('b'): 'x'")
    assert not list(tmp_path.glob(".*stdin*"))


def test_libsvm_parts_of_different_width(data_dir: Path, tmp_path: Path) -> None:
    lines = (data_dir / "heart_scale").read_text().splitlines()
    narrow = [line.rpartition(" 13:")[0] or line for line in lines[:100]]
    (tmp_path / "a.libsvm").write_text("\n".join(narrow) + "\n")
    (tmp_path / "b.libsvm").write_text("\n".join(lines[100:]) + "\n")
    command("prepare", tmp_path / "a.libsvm", tmp_path / "b.libsvm", tmp_path / "h.zarr", "--quiet")
    x, _, codes = rows_of(tmp_path / "h.zarr")
    assert x.shape == (270, 13) and (x[:100, 12] == 0).all() and len(set(codes)) == 2


@pytest.mark.parametrize("rule", ["drop", "mean", "median"])
def test_missing_values(
    data_dir: Path, tmp_path: Path, rule: str, capsys: pytest.CaptureFixture
) -> None:
    table = messy(data_dir)
    table.to_csv(tmp_path / "t.csv", index=False)
    chosen = ["--features", "fWidth,fAlpha", "--missing", rule, "--label-column", "class"]
    chosen += ["--scaling", "none"]
    command("prepare", tmp_path / "t.csv", tmp_path / "t.zarr", *chosen)
    x, names, _ = rows_of(tmp_path / "t.zarr")
    assert names == ["fWidth", "fAlpha"]
    both = table[["fWidth", "fAlpha"]]
    expected = both.dropna() if rule == "drop" else both.fillna(both.agg(rule))
    np.testing.assert_allclose(x, expected, rtol=1e-6)
    dropped = int(both["fWidth"].isna().sum())
    assert (f"dropped: {dropped} rows" in capsys.readouterr().out) == (rule == "drop")


@pytest.mark.parametrize("rule", ["mean", "median", "indicator"])
def test_gaps_are_filled_by_the_training_rows_alone(
    data_dir: Path, tmp_path: Path, rule: str
) -> None:
    table = messy(data_dir).assign(row=range(600))
    table.to_parquet(tmp_path / "t.parquet")
    options = ["--features", "row,fWidth", "--missing", rule, "--label-column", "class",
               "--test-fraction", 0.5, "--scaling", "none", "--quiet"]  # fmt: skip
    command("prepare", tmp_path / "t.parquet", tmp_path / "t.zarr", *options)
    rows = rows_of(tmp_path / "t.zarr")[0][:, 0].astype(int)
    expected = getattr(table["fWidth"][rows], "median" if rule == "median" else "mean")()
    assert expected != pytest.approx(table["fWidth"].agg("mean" if rule != "median" else rule))
    with open_dataset(tmp_path / "t.zarr") as data:
        assert data.encoding is not None
        fill = data.encoding["columns"][1]["fill"]
    assert fill == pytest.approx(expected, rel=1e-12)
    for part in ("train", "test"):
        x = rows_of(tmp_path / "t.zarr", part)[0]
        width = table["fWidth"][x[:, 0].astype(int)].fillna(fill)
        np.testing.assert_allclose(x[:, 1], width, rtol=1e-6)


def test_categories_are_those_of_the_training_rows_alone(
    data_dir: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    table = messy(data_dir).assign(row=range(600))
    path, store = tmp_path / "t.parquet", tmp_path / "t.zarr"
    options = ["prepare", path, store, *OPTIONS, "--test-fraction", 0.25, "--overwrite"]
    table.to_parquet(path)
    command(*options)
    row = int(rows_of(store, "test")[0][0, -1])  # a test row, as the split depends on the seed only
    table.loc[row, "angle"] = "once"
    table["gap"] = [None if k == row else 1.5 for k in range(600)]
    table.to_parquet(path)
    assert cli.main([str(option) for option in options]) == 2
    assert capfd.readouterr().err.splitlines()[-1] == (
        "error: column 'angle': the split left 'once' to test rows only; --unseen ignore takes "
        "them as none of the known values, another --seed splits otherwise"
    )
    command(*options, "--unseen", "ignore")
    x, names, _ = rows_of(store, "test")
    assert not {"angle=once", "gap (missing)"} & set(names) and "fWidth (missing)" in names
    angle = [k for k, name in enumerate(names) if name.startswith("angle=")]
    found = x[x[:, names.index("row")] == row][0]
    assert len(angle) == 4 and not found[angle].any() and found[names.index("gap")] == 1.5
    with open_dataset(store) as data:
        assert Encoding.from_json(data.encoding or {}).features == names


def test_arrow_files_are_scaled_by_default(data_dir: Path, tmp_path: Path) -> None:
    pyarrow.feather.write_feather(magic_table(data_dir, 100), tmp_path / "t.feather")
    command("prepare", tmp_path / "t.feather", tmp_path / "t.zarr", "--label-column", "class")
    assert rows_of(tmp_path / "t.zarr")[0].std(axis=0) == pytest.approx(1.0)


@pytest.fixture(scope="module")
def trained(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of messy parts."""
    folder = tmp_path_factory.mktemp("messy")
    (folder / "parts").mkdir()
    table = messy(data_dir, 900)
    for k in range(3):
        table[300 * k : 300 * k + 300].to_parquet(folder / "parts" / f"{k}.parquet")
    options = [*OPTIONS, "--scaling", "standard", "--test-fraction", 0.25, "--unseen", "ignore"]
    command("prepare", folder / "parts", folder / "t.zarr", *options)
    command("init", folder / "t.zarr", "--out", folder / "t.yaml")
    asked = ["--set", "solver.tolerance=0.1", "--run-dir", folder / "run"]
    command("train", folder / "t.yaml", *asked)
    return folder


def test_raw_rows_are_encoded_as_the_training_data_was(
    trained: Path, data_dir: Path, tmp_path: Path
) -> None:
    model = load_model(trained / "run/model.safetensors")
    with open_dataset(trained / "t.zarr") as data:
        assert data.encoding == model.about["encoding"]
    new = messy(data_dir, 300, seed=5)
    new.loc[3, "angle"] = "never seen"
    new.to_csv(tmp_path / "new.csv", index=False)
    new.to_parquet(tmp_path / "new.parquet")
    decision = model.decision_function(new)
    assert np.mean(model.predict(new) == new["class"]) > 0.75
    reordered = pa.Table.from_pandas(new[list(reversed(list(new)))])
    np.testing.assert_array_equal(model.decision_function(reordered), decision)
    for form in ("csv", "parquet"):
        out = tmp_path / f"{form}.csv"
        command("predict", trained / "run/model.safetensors", tmp_path / f"new.{form}", out,
                "--keep", "id")  # fmt: skip
        made = pd.read_csv(out)
        np.testing.assert_allclose(made["decision"], decision, rtol=1e-9, atol=1e-15)
        assert made["id"].tolist() == new["id"].tolist()


def test_an_hdf5_store_has_the_encoding_of_a_table_too(data_dir: Path, tmp_path: Path) -> None:
    messy(data_dir, 300).to_parquet(tmp_path / "t.parquet")
    for form in ("h5", "zarr"):
        command("prepare", tmp_path / "t.parquet", tmp_path / f"t.{form}", *OPTIONS, "--quiet")
    with open_dataset(tmp_path / "t.zarr") as one, open_dataset(tmp_path / "t.h5") as other:
        assert one.encoding == other.encoding and one.encoding is not None
    config = f"data: {{train: {tmp_path}/t.h5}}\nmodel: {{C: 1, kernel: {{name: linear}}}}\n"
    (tmp_path / "t.yaml").write_text(config)
    command("train", tmp_path / "t.yaml", "--run-dir", tmp_path / "run")
    assert len(load_model(tmp_path / "run/model.safetensors").predict(messy(data_dir, 9))) == 9
    with h5py.File(tmp_path / "t.h5", "a") as file:
        file["train"].attrs["encoding"] = file["train"].attrs["encoding"].replace("angle", "angel")
    with pytest.raises(UserError, match="damaged"), open_dataset(tmp_path / "t.h5"):
        pass


def columns_for(session: onnxruntime.InferenceSession, rows: pd.DataFrame) -> dict:
    """The inputs of an exported model: text as it is, numbers as float64, both (rows, 1)."""
    return {
        column.name: rows[[column.name]].fillna("").to_numpy(object)
        if column.type == "tensor(string)"
        else rows[[column.name]].to_numpy(np.float64)
        for column in session.get_inputs()
    }


def test_an_exported_model_takes_raw_columns(trained: Path, data_dir: Path, tmp_path: Path) -> None:
    command("export", trained / "run/model.safetensors", tmp_path / "m.onnx")
    command("export", trained / "run/model.safetensors", tmp_path / "m.model")
    beside = json.loads((tmp_path / "m.model.json").read_text())
    assert Encoding.from_json(beside["encoding"]).features == beside["features"]
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    new = messy(data_dir, 300, seed=5)
    new.loc[3, "angle"] = "never seen"
    assert new["angle"].isna().any() and new["fWidth"].isna().any()
    model = load_model(trained / "run/model.safetensors")
    assert [column.name for column in session.get_inputs()] == [*NAMES, "angle", "long"]
    label, decision = session.run(["label", "decision"], columns_for(session, new))
    np.testing.assert_allclose(decision, model.decision_function(new, precise=True), rtol=1e-9)
    assert label.tolist() == model.predict(new).tolist()
    new.loc[7, "fDist"] = np.nan  # no training row had a gap there: the mean, as `predict` has it
    decision = session.run(["decision"], columns_for(session, new))[0]
    np.testing.assert_allclose(decision, model.decision_function(new, precise=True), rtol=1e-9)


def test_an_exported_model_refuses_what_predict_refuses(tmp_path: Path) -> None:
    rows = pd.DataFrame({"x": ["a", "b"] * 20, "n": np.arange(40.0), "class": [0, 0, 1, 1] * 10})
    rows.to_csv(tmp_path / "t.csv", index=False)
    command("prepare", tmp_path / "t.csv", tmp_path / "t.zarr", "--categorical", "x", "--quiet")
    config = f"data: {{train: {tmp_path / 't.zarr'}}}\nmodel: {{kernel: {{sigma: 1}}}}\n"
    (tmp_path / "t.yaml").write_text(config)
    command("train", tmp_path / "t.yaml", "--run-dir", tmp_path / "run")
    command("export", tmp_path / "run/model.safetensors", tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    model = load_model(tmp_path / "run/model.safetensors")
    decision = session.run(["decision"], columns_for(session, rows))[0]  # columns named as values
    np.testing.assert_allclose(decision, model.decision_function(rows, precise=True), rtol=1e-9)
    for column, value in (("x", "c"), ("x", None), ("n", np.nan)):
        wrong = rows.copy()
        wrong.loc[5, column] = value
        with pytest.raises(UserError):
            model.predict(wrong)
        with pytest.raises(Exception, match="out of data bounds"):
            session.run(["decision"], columns_for(session, wrong))


def test_a_test_file_is_encoded_as_the_training_file(data_dir: Path, tmp_path: Path) -> None:
    train, test = messy(data_dir), messy(data_dir, 200, seed=3)
    test = test[test["angle"] != "wide"]
    train.to_csv(tmp_path / "train.csv", index=False)
    test[[*reversed(list(test)[:-1]), "class"]].to_csv(tmp_path / "test.csv", index=False)
    command("prepare", tmp_path / "train.csv", tmp_path / "t.zarr", "--test-file",
            tmp_path / "test.csv", *OPTIONS)  # fmt: skip
    x, names, _ = rows_of(tmp_path / "t.zarr", "test")
    wide = names.index("angle=wide")
    assert x.shape == (len(test), len(names)) and not x[:, wide].any()
    fill = np.float32(train["fWidth"].mean())
    assert (x[test["fWidth"].isna().to_numpy(), 1] == fill).all()


@pytest.mark.parametrize(
    ("source", "options", "words"),
    [
        ("t.csv", [], "row 1, column 'id': 'e0' is not a number; --categorical id makes"),
        ("t.csv", ["--ignore", "id"], "column 'fWidth': the value is missing"),
        ("t.csv", ["--ignore", "id", "--missing", "mean"], "column 'angle': "),
        ("t.csv", ["--ignore", "id", "--ignore", "angle"], "column 'fWidth': the value is missing"),
        ("t.csv", ["--ignore", "name"], "--ignore name: t.csv has no such column; it has 'id'"),
        ("t.csv", ["--ignore", "fWdth"], "t.csv has no such column; did you mean 'fWidth'?"),
        ("t.csv", ["--label-column", "clas"], "for the labels; did you mean 'class'?"),
        ("t.csv", ["--ignore", "class"], "'class' is that of the labels"),
        ("t.csv", ["--features", "fSize,zz"], "--features zz: t.csv has no such column"),
        ("t.csv", ["--categorical", "zz"], "--categorical zz: t.csv has no such column"),
        ("many.csv", ["--categorical", "auto"], "'id': more than 1,000 different values"),
        ("dates.parquet", ["--missing", "mean"], "'day' holds timestamp"),
        (
            "bare.npy",
            ["--ignore", "a"],
            "columns have no names, which --ignore needs",
        ),
        ("none*.csv", [], "none*.csv: no file has such a name"),
        ("empty", [], "empty: no parts of a table in this folder"),
        ("t.csv t.csv", [], "t.csv: is given twice"),
        ("t.csv other.csv", ["--ignore", "id"], "other.csv: has other columns than t.csv"),
        ("- t.csv", [], "standard input is a source by itself"),
        ("t.csv", ["--missing", "zero"], "--missing"),
    ],
)
def test_mistakes(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str,
    options: list[str], words: str, capsys: pytest.CaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    table = messy(data_dir, 60)
    table.to_csv("t.csv", index=False)
    messy(data_dir, 1500)[["id", "fSize", "class"]].to_csv("many.csv", index=False)
    table[NAMES].assign(c="x").to_csv("other.csv", index=False)
    dated = table[["fSize", "class"]].assign(day=pd.Timestamp("2026-11-18"))
    dated[["day", "fSize", "class"]].to_parquet("dates.parquet")
    np.save("bare.npy", np.ones((4, 3)))
    Path("empty").mkdir()
    label = [] if source == "bare.npy" else ["--label-column", "class"]
    if not options and "t.csv" in source:
        options = ["--missing", "error"] if source == "t.csv" else []
    assert cli.main(["prepare", *source.split(), "o.zarr", *label, *options]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("error:") == 1, error
    assert not Path("o.zarr").exists() and not list(tmp_path.glob(".*"))


def test_mistakes_in_rows_to_predict(
    trained: Path, data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    new = messy(data_dir, 50, seed=6)
    new.drop(columns="angle").to_csv(tmp_path / "a.csv", index=False)
    new.assign(long="perhaps").to_csv(tmp_path / "b.csv", index=False)
    np.save(tmp_path / "c.npy", np.ones((3, 17)))
    cases = {"a.csv": "no column 'angle'", "b.csv": "'perhaps' is", "c.npy": "have no names"}
    for name, words in cases.items():
        asked = [trained / "run/model.safetensors", tmp_path / name, tmp_path / "o.csv"]
        assert cli.main(["predict", *map(str, asked)]) == 2
        error = capsys.readouterr().err
        assert words in error and name in error and error.count("error:") == 1, error


def test_an_encoding_is_recorded_and_checked() -> None:
    made = Encoding((Column("a", "number", 0.5, True), Column("b", "category", categories=("x",))))
    assert Encoding.from_json(json.loads(json.dumps(made.to_json()))) == made
    assert made.features == ["a", "a (missing)", "b=x"]
    for key, value in (("missing", "guess"), ("unseen", "?"), ("columns", [{"name": "a"}])):
        with pytest.raises((ValueError, LookupError)):
            Encoding.from_json(made.to_json() | {key: value})


def test_unseen_values_are_refused_unless_ignored(tmp_path: Path) -> None:
    text = "kind,size,class\n" + "a,1,x\nb,2,y\n" * 10
    (tmp_path / "t.csv").write_text(text)
    (tmp_path / "test.csv").write_text("kind,size,class\na,1,x\nc,2,y\n")
    asked = ["prepare", str(tmp_path / "t.csv"), str(tmp_path / "t.zarr"), "--test-file",
             str(tmp_path / "test.csv"), "--categorical", "kind", "--scaling", "none",
             "--quiet"]  # fmt: skip
    err = io.StringIO()
    old, sys.stderr = sys.stderr, err
    try:
        assert cli.main(asked) == 2
    finally:
        sys.stderr = old
    assert "test.csv, row 2, column 'kind': no training row has 'c'" in err.getvalue()
    assert cli.main([*asked, "--unseen", "ignore"]) == 0
    x, _, _ = rows_of(tmp_path / "t.zarr", "test")
    np.testing.assert_array_equal(x, [[1, 0, 1], [0, 0, 2]])


@pytest.mark.parametrize("form", ["parquet", "feather"])
def test_the_index_of_a_data_frame_is_no_feature(data_dir: Path, tmp_path: Path, form: str) -> None:
    """pandas writes it as the last column, which would otherwise be that of the labels."""
    table = messy(data_dir).set_index("id")
    path = tmp_path / f"t.{form}"
    if form == "parquet":
        table.to_parquet(path)
    else:
        pyarrow.feather.write_feather(pa.Table.from_pandas(table), path)
    command("prepare", path, tmp_path / "t.zarr", *OPTIONS[4:])
    _, names, _ = rows_of(tmp_path / "t.zarr", "train")
    assert "fSize" in names and not any(name.startswith("id") for name in names)
    with open_dataset(tmp_path / "t.zarr/train") as data:
        assert data.label_column == "class"
    table.drop(columns="class").to_parquet(tmp_path / "new.parquet")
    command("init", tmp_path / "t.zarr", "--out", tmp_path / "t.yaml")
    command("train", tmp_path / "t.yaml", "--run-dir", tmp_path / "run")
    asked = ["predict", tmp_path / "run", tmp_path / "new.parquet", tmp_path / "o.csv"]
    command(*asked, "--keep", "id")
    assert pd.read_csv(tmp_path / "o.csv")["id"].tolist() == table.index.tolist()
