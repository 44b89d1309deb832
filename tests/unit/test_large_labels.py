"""Labels of 64 bits stay apart from file to prediction, and so do those in Latin-1."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

from bigsvm import BigSVC, cli, load_model
from bigsvm.config import PrepareOptions
from bigsvm.core.errors import UserError
from bigsvm.core.labels import classes_array, same_label, sorted_labels, to_label
from bigsvm.models.model import Model
from bigsvm.preparation.pipeline import prepare
from bigsvm.stores.store import open_dataset
from tests.support.bad_files import about

SMALL, LARGE = 2**53, 2**53 + 1  # the same as float64
X = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
WHICH = np.arange(20) % 2
PAIRS = {
    "signed": np.array([SMALL, LARGE]),
    "negative": np.array([-LARGE, -SMALL]),
    "unsigned": np.array([2**64 - 2, 2**64 - 1], np.uint64),
}


def written(folder: Path, form: str, y: np.ndarray) -> Path:
    path = folder / f"data.{form}"
    if form in ("csv", "libsvm"):
        joined = "{1:.3f},{2:.3f},{0}" if form == "csv" else "{0} 1:{1:.3f} 2:{2:.3f}"
        rows = (joined.format(label, *row) for label, row in zip(y.tolist(), X, strict=True))
        path.write_text("\n".join(rows) + "\n")
    elif form == "npz":
        np.savez(path, X=X, y=y)
    else:
        pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1], "y": y}), path)
    return path


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("form", ["csv", "libsvm", "npz", "parquet"])
def test_prepared(form: str, kind: str, tmp_path: Path) -> None:
    labels = PAIRS[kind]
    prepare(written(tmp_path, form, labels[WHICH]), tmp_path / "s.zarr", PrepareOptions())
    with open_dataset(tmp_path / "s.zarr") as data:
        assert data.classes == tuple(labels.tolist())
        assert data.labels().tolist() == (2 * WHICH - 1).tolist()


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
def test_own_arrays(suffix: str, kind: str, tmp_path: Path) -> None:
    path, labels = tmp_path / f"s{suffix}", PAIRS[kind]
    if suffix == ".h5":
        with h5py.File(path, "w") as file:
            file["X"], file["y"] = X, labels[WHICH]
    else:
        group = zarr.create_group(path)
        group.create_array("X", data=X)
        group.create_array("y", data=labels[WHICH])
    assert open_dataset(path).classes == tuple(labels.tolist())
    positive = open_dataset({"path": path, "positive": str(labels[0])})
    assert positive.classes == tuple(labels[::-1].tolist())
    model = BigSVC().fit(str(path))
    np.testing.assert_array_equal(model.classes_, labels)


@pytest.mark.parametrize("kind", PAIRS)
def test_from_the_estimator_to_every_output(kind: str, tmp_path: Path) -> None:
    labels = PAIRS[kind]
    model = BigSVC().fit(X, labels[WHICH]).to_model()
    assert model.classes == tuple(labels.tolist())
    model.save(tmp_path / "m.safetensors")
    model = load_model(tmp_path / "m.safetensors")
    expected = model.predict(X).tolist()
    assert set(expected) <= set(labels.tolist())
    np.save(tmp_path / "rows.npy", X)
    for suffix in ("csv", "parquet", "zarr"):
        out = tmp_path / f"out.{suffix}"
        command = ["predict", tmp_path / "m.safetensors", tmp_path / "rows.npy", out, "--no-labels"]
        assert cli.main([*map(str, command)]) == 0
    assert pq.read_table(tmp_path / "out.parquet")["label"].to_pylist() == expected
    assert zarr.open_group(tmp_path / "out.zarr")["label"][:].tolist() == expected
    lines = (tmp_path / "out.csv").read_text().splitlines()[1:]
    assert [int(line.split(",")[-1]) for line in lines] == expected
    onnxruntime = pytest.importorskip("onnxruntime")
    out = tmp_path / "m.onnx"
    assert cli.main(["export", str(tmp_path / "m.safetensors"), str(out)]) == 0
    session = onnxruntime.InferenceSession(out)
    assert session.run(["label"], {"X": X.astype(float)})[0].tolist() == expected
    libsvm = ["export", str(tmp_path / "m.safetensors"), str(tmp_path / "m.model")]
    assert cli.main(libsvm) == 0


def test_both_signs_of_64_bits(tmp_path: Path) -> None:
    """No type of numpy has both; as text they stay what they are."""
    model = Model(X[:2], np.ones(2), np.arange(2), {"name": "linear"}, (-1, 2**64 - 1))
    assert model.labels_of(np.array([-1.0, 1.0])).tolist() == [-1, 2**64 - 1]
    model.save(tmp_path / "m.safetensors")
    np.save(tmp_path / "rows.npy", X)
    for out in ("out.parquet", "out.zarr", "out.csv"):
        command = ["predict", tmp_path / "m.safetensors", tmp_path / "rows.npy", tmp_path / out]
        assert cli.main([*map(str, command), "--no-labels"]) == 0
    assert set(pq.read_table(tmp_path / "out.parquet")["label"].to_pylist()) <= {
        "-1",
        str(2**64 - 1),
    }
    assert cli.main(["export", str(tmp_path / "m.safetensors"), str(tmp_path / "m.onnx")]) == 0


def test_more_than_64_bits_are_a_wrong_column(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text(f"1,2,{10**30}\n3,4,{10**30 + 1}\n")
    with pytest.raises(UserError, match=r"s\.csv, line 1: the label 1000.*64 bits"):
        prepare(tmp_path / "s.csv", tmp_path / "s.zarr", PrepareOptions())


def test_latin_1_labels_stay_apart(tmp_path: Path) -> None:
    labels = np.array(["gr\xfcn".encode("latin-1"), "gr\xe4n".encode("latin-1")])
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["X"], file["y"] = X, labels[WHICH]
    assert open_dataset(tmp_path / "s.h5").classes == ("gr\xe4n", "gr\xfcn")
    np.savez(tmp_path / "s.npz", X=X, y=labels[WHICH])
    prepare(tmp_path / "s.npz", tmp_path / "s.zarr", PrepareOptions())
    assert open_dataset(tmp_path / "s.zarr").classes == ("gr\xe4n", "gr\xfcn")
    both = np.array(["\xfc".encode("latin-1"), "\xfc".encode()])
    with h5py.File(tmp_path / "both.h5", "w") as file:
        file["X"], file["y"] = X, both[WHICH]
    with pytest.raises(UserError, match="one encoding"):
        open_dataset(tmp_path / "both.h5")


def test_what_labels_are() -> None:
    assert to_label(np.int64(LARGE)) == LARGE and to_label(np.uint64(2**64 - 1)) == 2**64 - 1
    assert to_label(np.float32(2)) == 2 and isinstance(to_label(np.float32(2)), int)
    assert to_label(True) == 1 and to_label(np.True_) == 1 and to_label(1e20) == 1e20
    assert same_label(LARGE, str(LARGE)) and not same_label(SMALL, str(LARGE))
    assert same_label(1, "+1") and same_label("1.0", 1) and not same_label("one", 1)
    assert sorted_labels({LARGE, SMALL, 0.5}) == [0.5, SMALL, LARGE]
    assert classes_array((0.5, 7)).dtype == np.float64
    assert classes_array((0.5, LARGE)).tolist() == [0.5, LARGE]
    assert classes_array(("rest", 2)).tolist() == ["rest", "2"]


@pytest.mark.parametrize(
    "classes",
    [[True, False], [0, float("nan")], [0, float("inf")], [0, 2**64], [0, 10**400], ["a", "\ud800"],
     ["a", None], ["a", ["b"]], ["a", {}], ["", "a"]],
    ids=str,
)  # fmt: skip
def test_forged_labels_make_no_model(
    classes: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.safetensors"
    Model(X[:2], np.ones(2), np.arange(2), {"name": "linear"}, (0, 1)).save(path)
    about(classes=classes)(path)
    for out in ("m.onnx", "m.model"):
        assert cli.main(["export", str(path), str(tmp_path / out)]) == 2
        assert capsys.readouterr().err.count("\n") == 1
