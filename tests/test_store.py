"""A store reads back what was written, in any format and chunking, and says what is wrong."""

import os
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

from bigsvm.errors import UserError
from bigsvm.fingerprint import fingerprint, verified_fingerprint
from bigsvm.prepare import prepare
from bigsvm.prepare_options import PrepareOptions
from bigsvm.scaling import Scaling
from bigsvm.store import Dataset, open_dataset
from bigsvm.store_rows import CHUNK_BYTES
from bigsvm.store_writer import About, StoreWriter

FORMATS = ("s.zarr", "s.h5", "s.hdf5")


def some_rows(n: int, d: int = 7) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(n + d)
    X = generator.normal(size=(n, d)).astype(np.float32)
    y = np.where(np.arange(n) % 3 == 0, 1, -1).astype(np.int8)
    return X, y


def write(path: Path, n: int = 100, chunk_rows: int = 32, batch: int = 13, **options) -> Path:
    X, y = some_rows(n)
    about = options.pop("about", About(classes=("b", "s")))
    with StoreWriter(path, {"train": n}, 7, about, chunk_rows=chunk_rows, **options) as writer:
        for start in range(0, n, batch):
            writer.append("train", X[start : start + batch], y[start : start + batch])
    return path


def own_arrays(path: Path, **arrays: np.ndarray) -> Path:
    """A file of the user's own, made without bigsvm."""
    if path.suffix == ".zarr":
        group = zarr.create_group(path)
        for name, values in arrays.items():
            group.create_array(name, data=values)
    else:
        with h5py.File(path, "w") as file:
            for name, values in arrays.items():
                file[name] = values
    return path


@pytest.mark.parametrize("name", FORMATS)
def test_reads_back_what_was_written(tmp_path: Path, name: str) -> None:
    X, y = some_rows(100)
    scaling = Scaling("standard", np.arange(7) / 3, np.full(7, 0.1), 8.0)
    about = About(("background", "signal"), scaling, list("abcdefg"), "here", {"seed": 3})
    write(tmp_path / name, about=about)
    with open_dataset(tmp_path / name) as data:
        assert (data.n, data.d, data.chunk_rows, data.stored_chunk_bytes) == (100, 7, 32, 32 * 28)
        assert data.classes == ("background", "signal")
        assert data.scaling == scaling
        assert data.feature_names == list("abcdefg")
        assert data.source == "here"
        assert list(data.spans()) == [(0, 32), (32, 64), (64, 96), (96, 100)]
        rows = data.read(20, 70)
        assert rows.dtype == np.float32 and rows.flags.c_contiguous
        np.testing.assert_array_equal(rows, X[20:70])
        assert data.labels().dtype == np.int8
        np.testing.assert_array_equal(data.labels(), y)
        assert fingerprint(data) == data.recorded_fingerprint
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_zarr_stores_are_version_3_with_labels_and_rows_as_promised(tmp_path: Path) -> None:
    group = zarr.open_group(write(tmp_path / "s.zarr"), mode="r")["train"]
    assert group.metadata.zarr_format == 3
    assert (group["X"].dtype, group["y"].dtype) == (np.float32, np.int8)
    assert group.attrs["classes"] == ["b", "s"]


def test_hdf5_attributes_hold_thousands_of_feature_names(tmp_path: Path) -> None:
    names = [f"a feature with a long name {i}" for i in range(5000)]
    write(tmp_path / "s.h5", about=About((0, 1), feature_names=names))
    assert open_dataset(tmp_path / "s.h5").feature_names == names


def test_fingerprint_depends_on_content_only(tmp_path: Path) -> None:
    stores = [
        write(tmp_path / "a.zarr", chunk_rows=32),
        write(tmp_path / "b.zarr", chunk_rows=1, batch=50, compression="none"),
        write(tmp_path / "c.h5", chunk_rows=77, batch=100),
    ]
    X, y = some_rows(100)
    own = own_arrays(tmp_path / "d.h5", features=X.astype(np.float64), labels=y * 5)
    prints = {fingerprint(open_dataset(store)) for store in stores}
    prints.add(fingerprint(open_dataset({"path": own, "x": "features", "y": "labels"})))
    prints |= {open_dataset(store).recorded_fingerprint for store in stores}
    assert len(prints) == 1

    X[50, 3] = np.nextafter(X[50, 3], np.float32(9))
    changed = [own_arrays(tmp_path / "e.h5", X=X, y=y)]
    X, y = some_rows(100)
    y[7] = -y[7]
    changed.append(own_arrays(tmp_path / "f.h5", X=X, y=y))
    X, y = some_rows(100)
    changed.append(own_arrays(tmp_path / "g.h5", X=X.reshape(50, 14), y=y[:50]))
    prints |= {fingerprint(open_dataset(path)) for path in changed}
    assert len(prints) == 4


@pytest.mark.parametrize("name", FORMATS)
def test_gather_keeps_the_order_asked_and_reads_a_chunk_once(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, _ = some_rows(100)
    data = open_dataset(write(tmp_path / name))
    chunks_read = []
    read = Dataset.read

    def counted(self: Dataset, start: int, stop: int) -> np.ndarray:
        chunks_read.append((start // 32, (stop - 1) // 32))
        return read(self, start, stop)

    monkeypatch.setattr(Dataset, "read", counted)
    wanted = np.array([99, 3, 64, 3, 31, 32, 0, 70])
    np.testing.assert_array_equal(data.gather(wanted), X[wanted])
    assert sorted(chunks_read) == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert data.gather(np.array([], dtype=int)).shape == (0, 7)
    for outside in (100, -1):
        with pytest.raises(IndexError):
            data.gather(np.array([outside]))


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


def test_parts_are_found_from_the_store_and_by_their_own_path(tmp_path: Path) -> None:
    X, y = some_rows(10)
    for name in ("s.zarr", "s.h5"):
        parts = {"train": 7, "test": 3}
        with StoreWriter(tmp_path / name, parts, 7, About((0, 1))) as writer:
            writer.append("test", X[7:], y[7:])
            writer.append("train", X[:7], y[:7])
        assert open_dataset(tmp_path / name).n == 7
        assert open_dataset(tmp_path / name, part="test").n == 3
        assert open_dataset(str(tmp_path / name / "test")).n == 3
        with pytest.raises(UserError):
            open_dataset(tmp_path / name / "trian")


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
            fingerprint(open_dataset(path))


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


def test_paths_that_are_no_store(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such store"):
        open_dataset(tmp_path / "missing.zarr")
    with pytest.raises(UserError, match="not a Zarr group"):
        open_dataset(tmp_path)
    (tmp_path / "text.csv").write_text("1,2\n")
    with pytest.raises(UserError, match="neither a Zarr nor an HDF5"):
        open_dataset(tmp_path / "text.csv")
    with pytest.raises(UserError, match="'lables' is not known"):
        open_dataset({"path": tmp_path, "lables": "y"})
    (tmp_path / ".new.zarr.partial").mkdir()
    with pytest.raises(UserError, match="still being prepared"):
        open_dataset(tmp_path / "new.zarr")


def test_a_file_that_another_program_writes(tmp_path: Path) -> None:
    import subprocess
    import sys

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


def test_damage_is_told_and_never_read_as_zeros(tmp_path: Path) -> None:
    for compression in ("zstd", "none"):
        store = write(tmp_path / f"{compression}.zarr", compression=compression)
        chunks = store / "train/X/c"
        os.truncate(chunks / "1/0", (chunks / "1/0").stat().st_size - 3)
        with pytest.raises(UserError, match="rows 32 to 64: cannot be read"):
            open_dataset(store).read(32, 64)
        (chunks / "1/0").unlink()
        with pytest.raises(UserError, match="row 32, column 0"):
            fingerprint(open_dataset(store))
        (store / "train/y/c/0").unlink()
        with pytest.raises(UserError, match="neither -1 nor"):
            open_dataset(store).labels()
    store = write(tmp_path / "s.h5")
    os.truncate(store, 3000)
    with pytest.raises(UserError, match="cannot be opened"):
        open_dataset(store)


def test_rows_that_change_while_they_are_in_use(tmp_path: Path) -> None:
    """Read again on every pass, they would make a mixture of two data sets, the model of none."""
    options = PrepareOptions(rows=100, features=2, chunk_rows=32, compression="none")
    prepare("synthetic", tmp_path / "s.zarr", options)
    with open_dataset(tmp_path / "s.zarr") as data:
        verified_fingerprint(data)
        data.read(32, 64)
        chunk = tmp_path / "s.zarr" / "train" / "X" / "c" / "1" / "0"
        chunk.write_bytes(bytes(reversed(chunk.read_bytes())))
        with pytest.raises(UserError, match="rows 32 to 64 are not what they were"):
            data.read(32, 64)
        with pytest.raises(UserError, match="rows 32 to 64 are not what they were"):
            data.gather(np.array([3, 40, 50]))
        data.read(0, 32)


@pytest.mark.parametrize("name", FORMATS)
def test_a_failed_write_leaves_nothing(tmp_path: Path, name: str) -> None:
    X, y = some_rows(10)
    with (
        pytest.raises(KeyboardInterrupt),
        StoreWriter(tmp_path / name, {"train": 10}, 7, About((0, 1)), chunk_rows=2) as writer,
    ):
        writer.append("train", X[:5], y[:5])
        assert not (tmp_path / name).exists()
        raise KeyboardInterrupt
    with (
        pytest.raises(ValueError, match="got 5 of its 10"),
        StoreWriter(tmp_path / name, {"train": 10}, 7, About((0, 1))) as writer,
    ):
        writer.append("train", X[:5], y[:5])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", FORMATS)
def test_an_existing_store_is_kept_unless_asked(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, n=10)
    with pytest.raises(UserError, match="exists already"):
        write(tmp_path / name, n=20)
    with (
        pytest.raises(RuntimeError),
        StoreWriter(tmp_path / name, {"train": 5}, 7, About((0, 1)), overwrite=True),
    ):
        raise RuntimeError
    assert open_dataset(tmp_path / name).n == 10
    write(tmp_path / name, n=20, overwrite=True)
    assert open_dataset(tmp_path / name).n == 20
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_overwrite_spares_what_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "thesis.zarr").mkdir()
    (tmp_path / "thesis.zarr/chapter1.tex").write_text("years of work")
    with pytest.raises(UserError, match="is not a store"):
        write(tmp_path / "thesis.zarr", overwrite=True)
    assert (tmp_path / "thesis.zarr/chapter1.tex").exists()


def test_targets_that_cannot_be_written(tmp_path: Path) -> None:
    for path, options, message in (
        (tmp_path / "s.npy", {}, r"name the store \*.zarr"),
        (tmp_path / "no/such/s.zarr", {}, "there is no folder"),
        (tmp_path / "s.h5", {"compression": "zstd"}, "HDF5 has no zstd"),
        (tmp_path / "s.zarr", {"compression": "lzma"}, "'lzma' is not known"),
    ):
        with pytest.raises(UserError, match=message):
            write(path, **options)


def test_two_writers_of_one_store_and_leftovers(tmp_path: Path) -> None:
    leftover = tmp_path / ".s.zarr.partial"
    leftover.mkdir()
    (leftover / "rubbish").write_text("of a killed process")
    with StoreWriter(tmp_path / "s.zarr", {"train": 10}, 7, About((0, 1))) as writer:
        assert not (leftover / "rubbish").exists()
        with pytest.raises(UserError, match="another process is writing it"):
            write(tmp_path / "s.zarr")
        writer.append("train", *some_rows(10))
    assert open_dataset(tmp_path / "s.zarr").n == 10
    assert not leftover.exists()


def test_a_store_can_be_moved(tmp_path: Path) -> None:
    shutil.move(write(tmp_path / "s.zarr"), tmp_path / "moved.zarr")
    data = open_dataset(tmp_path / "moved.zarr")
    assert fingerprint(data) == data.recorded_fingerprint
