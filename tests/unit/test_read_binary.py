"""NumPy's files and Parquet, right and wrong."""

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bigsvm.readers as readers
from bigsvm.readers import open_reader
from tests.support.reading import read, refusal, write


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int16, np.bool_, ">f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type, order: str) -> None:
    monkeypatch.setattr(readers, "BATCH_BYTES", 8 * 4 * 10)
    table = np.random.default_rng(0).integers(0, 2, size=(95, 4)).astype(kind)
    path = tmp_path / "t.npy"
    np.save(path, np.asarray(table, order=order))  # type: ignore[call-overload]
    x, y = read(path)
    assert (x == table[:, :3]).all()
    assert (y == table[:, 3]).all()
    x, y = read(path, label_column=1)
    assert (x == table[:, [0, 2, 3]]).all()
    assert (y == table[:, 1]).all()
    assert (read(path, with_labels=False)[0] == table).all()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save: Callable[..., None]) -> None:
    monkeypatch.setattr(readers, "BATCH_BYTES", 8 * 4 * 10)
    table = np.random.default_rng(0).normal(size=(95, 4)).astype(np.float32)
    labels = np.where(table[:, 0] > 0, "yes", "no")
    path = tmp_path / "t.npz"
    save(path, X=table, y=labels, other=np.zeros(3))
    x, y = read(path)
    assert (x == table).all()
    assert (y == labels).all()
    assert (read(path, with_labels=False)[0] == table).all()
    assert "95 rows" in refusal(path, label_column="other")
    assert "'X', 'y', 'other'" in refusal(path, label_column="missing")


def test_wrong_numpy_files(tmp_path: Path) -> None:
    path = tmp_path / "t.npy"
    table = np.ones((5, 3))
    table[3, 1] = np.nan
    np.save(path, table)
    assert "row 4, feature 2" in refusal(path)
    assert "ends before" in refusal(write(tmp_path, path.read_bytes()[:-8], "cut.npy"))
    assert "not a readable" in refusal(write(tmp_path, path.read_bytes()[:20], "header.npy"))
    np.save(path, np.array([[1, "a"]], object), allow_pickle=True)
    assert "could run code" in refusal(path)
    for wrong in (np.ones(5), np.ones((2, 2, 2)), np.ones((2, 2), complex), np.array([["a", "b"]])):
        np.save(path, wrong)
        assert "two-dimensional numbers" in refusal(path)
    for empty in (np.ones((0, 3)), np.ones((3, 0)), np.ones((3, 1))):
        np.save(path, empty)
        refusal(path)
    np.savez(tmp_path / "f.npz", X=np.asfortranarray(np.ones((5, 3))), y=np.ones(5))
    assert "ascontiguousarray" in refusal(tmp_path / "f.npz")
    np.savez(tmp_path / "n.npz", X=np.ones((5, 3)), y=np.array([1, 2, np.nan, 1, 1]))
    assert "row 3" in refusal(tmp_path / "n.npz")


def test_npy_header_that_promises_too_much_allocates_nothing(tmp_path: Path) -> None:
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 8), }"
    header += b" " * (118 - len(header) - 1) + b"\n"
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header
    assert "ends before" in refusal(write(tmp_path, content, "t.npy"))


def test_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "BATCH_BYTES", 8 * 3 * 10)
    columns = {
        "a": np.arange(95),
        "b": np.arange(95) % 2 == 0,
        "c": pa.array([f"{k}.50" for k in range(95)]).cast(pa.decimal128(8, 2)),
        "kind": pa.array(["u", "v", "w", "u", "v"] * 19).dictionary_encode(),
    }
    path = tmp_path / "data"
    pq.write_table(pa.table(columns), path, row_group_size=33)
    x, y = read(path)
    k = np.arange(95)
    assert (x == np.stack([k, k % 2 == 0, k + 0.5], axis=1)).all()
    assert y.tolist() == ["u", "v", "w", "u", "v"] * 19
    assert open_reader(path).feature_names == ["a", "b", "c"]
    x, y = read(path.rename(tmp_path / "t.parquet"), label_column="kind")
    assert x.shape == (95, 3)
    assert "'kind' holds" in refusal(tmp_path / "t.parquet", label_column="a")
    refusal(write(tmp_path, (tmp_path / "t.parquet").read_bytes()[:-20], "cut.parquet"))


def test_wrong_parquet(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": [1, None], "y": [1, 2]}), path)
    assert "row 2, column 'a'" in refusal(path)
    pq.write_table(pa.table({"a": [1, 2], "y": ["u", None]}), path)
    assert "row 2: the label is missing" in refusal(path)
    pq.write_table(pa.table({"a": [1.0, float("inf")], "y": [1, 2]}), path)
    assert "row 2, feature 1 ('a')" in refusal(path)
    pq.write_table(pa.table({"a": pa.array([], pa.float64()), "y": pa.array([], pa.int8())}), path)
    assert "no rows" in refusal(path)


def test_the_index_of_a_data_frame_is_no_feature(tmp_path: Path) -> None:
    table = pd.DataFrame({"a": [1.0, 2, 3], "b": [4.0, 5, 6], "kind": ["u", "v", "u"]})
    expected = read_frame(table, tmp_path)
    for index in (table.index[::-1], pd.Index(["x", "y", "z"], name="who"), table["a"] * 7):
        x, y, names = read_frame(table.set_index(index), tmp_path)
        assert x.tolist() == expected[0].tolist() and y.tolist() == ["u", "v", "u"]
        assert names == ["a", "b"]
    metadata = {b"pandas": b'{"index_columns": 3}'}
    plain = pa.Table.from_pandas(table).replace_schema_metadata(metadata)
    pq.write_table(plain, tmp_path / "odd.parquet")
    assert read(tmp_path / "odd.parquet")[0].shape == (3, 2)


def read_frame(table: pd.DataFrame, folder: Path) -> tuple:
    table.to_parquet(folder / "frame.parquet")
    names = open_reader(folder / "frame.parquet").feature_names
    return *read(folder / "frame.parquet"), names
