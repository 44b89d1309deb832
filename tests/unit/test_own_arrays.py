"""Arrays of the user's own: any labels, any chunks, and what may be wrong with them."""

import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

from bigsvm import cli
from bigsvm.core.errors import UserError
from bigsvm.stores.fingerprint import verified_fingerprint
from bigsvm.stores.rows import CHUNK_BYTES
from bigsvm.stores.store import open_dataset
from tests.support.small_stores import own_arrays, write


@pytest.mark.filterwarnings("ignore:The data type")  # Zarr 3 on labels that are bytes
@pytest.mark.parametrize("suffix", [".zarr", ".h5"])
@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (np.array([2, 1, 1, 2]), (1, 2)),
        (np.array([0.5, 7, 7, 0.5]), (0.5, 7)),
        (np.array([False, True, True, False]), (0, 1)),
        (np.array([b"yes", b"no", b"no", b"yes"]), ("no", "yes")),
        (np.array([[1], [10], [10], [1]], dtype=np.uint8), (1, 10)),
    ],
)
def test_own_arrays_with_any_two_labels(
    tmp_path: Path, suffix: str, labels: np.ndarray, classes: tuple
) -> None:
    X = np.arange(8, dtype=">i4").reshape(4, 2)
    path = own_arrays(tmp_path / f"mine{suffix}", rows=X, marks=labels)
    data = open_dataset({"path": str(path), "x": "rows", "y": "marks"})
    assert data.classes == classes
    larger = max(labels.ravel().tolist())
    expected = np.where(labels.ravel() == larger, 1, -1)
    np.testing.assert_array_equal(data.labels(), expected)
    np.testing.assert_array_equal(data.read(1, 3), X[1:3].astype(np.float32))


def test_text_labels_and_nested_names(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "mine.h5", "w") as file:
        file["deep/er/rows"] = np.eye(3)
        file["deep/marks"] = ["cat", "dog", "cat"]
    spec = {"path": tmp_path / "mine.h5", "x": "deep/er/rows", "y": "deep/marks"}
    assert open_dataset(spec).labels().tolist() == [-1, 1, -1]
    assert open_dataset({**spec, "positive": "cat"}).labels().tolist() == [1, -1, 1]
    inside = {"path": tmp_path / "mine.h5/deep", "x": "er/rows", "y": "marks"}
    assert open_dataset(inside).classes == ("cat", "dog")


def test_one_label_against_the_rest(tmp_path: Path) -> None:
    path = own_arrays(tmp_path / "mine.h5", X=np.eye(4), y=np.array([3, 1, 2, 1]))
    data = open_dataset({"path": path, "positive": "2"})
    assert data.classes == ("rest", 2)
    assert data.labels().tolist() == [-1, -1, 1, -1]


def test_labels_follow_the_classes_of_a_model(tmp_path: Path) -> None:
    path = own_arrays(tmp_path / "test.h5", X=np.eye(3), y=np.array([5, 5, 5]))
    assert open_dataset(path, classes=(4, 5)).labels().tolist() == [1, 1, 1]
    assert open_dataset(path, classes=("rest", 9)).labels().tolist() == [-1, -1, -1]
    with pytest.raises(UserError, match="label 5 is neither 1 nor 2"):
        open_dataset(path, classes=(1, 2))
    prepared = write(tmp_path / "s.zarr")
    straight = open_dataset(prepared).labels()
    np.testing.assert_array_equal(open_dataset(prepared, classes=("s", "b")).labels(), -straight)
    positive = open_dataset({"path": prepared, "positive": "b"})
    assert positive.classes == ("s", "b")
    np.testing.assert_array_equal(positive.labels(), -straight)
    with pytest.raises(UserError, match="are not"):
        open_dataset(prepared, classes=("s", "c"))


def test_rows_without_labels(tmp_path: Path) -> None:
    path = own_arrays(tmp_path / "mine.h5", X=np.eye(3))
    data = open_dataset(path, with_labels=False)
    assert data.read(0, 3).shape == (3, 3)
    with pytest.raises(UserError, match="without labels"):
        data.labels()
    with pytest.raises(UserError, match="without labels"):
        _ = data.classes


def test_unchunked_and_finely_chunked_arrays_are_read_in_larger_spans(tmp_path: Path) -> None:
    n = 3 * CHUNK_BYTES // (4 * 64)
    X = np.zeros((n, 64), dtype=np.float32)
    y = np.arange(n) % 2
    with h5py.File(tmp_path / "mine.h5", "w") as file:
        file["X"], file["y"] = X, y
        file.create_dataset("fine", data=X, chunks=(100, 64))
    whole = open_dataset(tmp_path / "mine.h5")
    assert whole.chunk_rows == CHUNK_BYTES // (4 * 64) == n // 3
    fine = open_dataset({"path": tmp_path / "mine.h5", "x": "fine"})
    assert fine.chunk_rows == 32700 and fine.stored_chunk_bytes == 100 * 64 * 4


def test_a_value_that_is_not_finite_is_named(tmp_path: Path) -> None:
    for value, shown in ((np.nan, "nan"), (1e200, "inf")):
        X = np.zeros((5, 3))
        X[3, 1] = value
        path = own_arrays(tmp_path / f"{shown}.h5", X=X, y=np.arange(5) % 2)
        with pytest.raises(UserError, match=f"row 3, column 1 .* is {shown}"):
            verified_fingerprint(open_dataset(path))


@pytest.mark.parametrize("suffix", [".zarr", ".h5"])
@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"features": np.eye(2)}, "no array 'X' in it; it has: features"),
        ({"X": np.eye(2)}, "no array 'y' in it; it has: X"),
        ({"X": np.eye(3), "y": np.array([0, 1])}, "y has shape .* 3 rows"),
        ({"X": np.arange(3.0), "y": np.array([0, 1, 1])}, r"shape \(3,\), not"),
        ({"X": np.zeros((0, 3)), "y": np.zeros(0)}, "X is empty"),
        ({"X": np.zeros((3, 0)), "y": np.array([0, 1, 1])}, "X is empty"),
        ({"X": np.eye(2), "y": np.array([3, 3])}, "one class only; the labels are 3"),
        ({"X": np.eye(3), "y": np.array([3, 1, 2])}, "3 different labels in 3 rows"),
        ({"X": np.eye(2), "y": np.array([1.0, np.nan])}, "a label is nan"),
        ({"X": np.eye(2) * 1j, "y": np.array([0, 1])}, "not real numbers"),
    ],
)
def test_mistakes_in_own_arrays(
    tmp_path: Path, suffix: str, arrays: dict[str, np.ndarray], message: str
) -> None:
    path = own_arrays(tmp_path / f"mine{suffix}", **arrays)
    with pytest.raises(UserError, match=message) as mistake:
        open_dataset(path)
    assert str(path) in str(mistake.value) and "\n" not in str(mistake.value)


def test_a_file_that_another_program_writes(tmp_path: Path) -> None:
    path = own_arrays(tmp_path / "mine.h5", X=np.eye(2), y=np.array([0, 1]))
    hold = "import h5py, sys; f = h5py.File(sys.argv[1], 'a'); print('open', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None and writer.stdout.readline() == b"open\n"
        with pytest.raises(UserError, match="another program is writing"):
            open_dataset(path)
        writer.communicate(b"\n")
    assert open_dataset(path).n == 2


ATTRIBUTES = {
    "source": 7,
    "scaling": "none of yours",
    "classes": "cat,dog",
    "feature_names": "a b c",
    "files": 3.5,
    "parts": "two",
    "prepare": "[",
    "fingerprint": "of my left thumb",
    "weight_digest": "?",
    "bigsvm_format": 12,
    "rest_is_a_label": "yes",
}


@pytest.mark.parametrize("suffix", [".zarr", ".h5"])
@pytest.mark.parametrize("names", [[name] for name in ATTRIBUTES] + [list(ATTRIBUTES)], ids=str)
def test_attributes_of_the_users_own_mean_nothing(
    names: list[str], suffix: str, tmp_path: Path
) -> None:
    """`scaling`, `classes` and the like are ordinary names; `prepare` seals its own."""
    path = own_arrays(tmp_path / f"mine{suffix}", X=np.eye(4), y=np.array([3, 1, 3, 1]))
    given = {name: ATTRIBUTES[name] for name in names}
    if suffix == ".zarr":
        zarr.open_group(path).attrs.update(given)
    else:
        with h5py.File(path, "a") as file:
            file.attrs.update(given)
            file.attrs["odd"] = h5py.Empty("f4")
    with open_dataset(path) as data:
        assert data.classes == (1, 3) and data.labels().tolist() == [1, -1, 1, -1]
        assert (data.scaling, data.feature_names, data.parts) == (None, None, None)
        assert (data.source, data.files, data.prepare_options) == ("", {}, {})
        assert not data.has_weights and data.recorded_fingerprint is None
        assert verified_fingerprint(data)
    assert cli.main(["inspect", str(path)]) == 0


@pytest.mark.parametrize("name", ["s.zarr", "s.h5"])
def test_a_store_that_has_lost_its_seal_is_still_ours(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / name)
    if name == "s.zarr":
        del zarr.open_group(path)["train"].attrs["bigsvm_seal"]
    else:
        with h5py.File(path, "a") as file:
            del file["train"].attrs["bigsvm_seal"]
    assert open_dataset(path).classes == ("b", "s")
