"""A store reads back what was written, in any format and chunking, and says what is wrong."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import zarr

from bigsvm.config import PrepareOptions
from bigsvm.core.errors import UserError
from bigsvm.core.scaling import Scaling
from bigsvm.preparation.pipeline import prepare
from bigsvm.stores.fingerprint import verified_fingerprint
from bigsvm.stores.store import Dataset, open_dataset
from bigsvm.stores.writer import StoreMetadata, StoreWriter
from tests.support.small_stores import FORMATS, own_arrays, some_rows, write


@pytest.mark.parametrize("name", FORMATS)
def test_reads_back_what_was_written(tmp_path: Path, name: str) -> None:
    X, y = some_rows(100)
    scaling = Scaling("standard", np.arange(7) / 3, np.full(7, 0.1), 8.0)
    about = StoreMetadata(("background", "signal"), scaling, list("abcdefg"), "here", {"seed": 3})
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
        assert verified_fingerprint(data) == data.recorded_fingerprint
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_zarr_stores_are_version_3_with_labels_and_rows_as_promised(tmp_path: Path) -> None:
    group = zarr.open_group(write(tmp_path / "s.zarr"), mode="r")["train"]
    assert group.metadata.zarr_format == 3
    assert (group["X"].dtype, group["y"].dtype) == (np.float32, np.int8)
    assert group.attrs["classes"] == ["b", "s"]


def test_hdf5_attributes_hold_thousands_of_feature_names(tmp_path: Path) -> None:
    names = [f"a feature with a long name {i}" for i in range(5000)]
    write(tmp_path / "s.h5", about=StoreMetadata((0, 1), feature_names=names))
    assert open_dataset(tmp_path / "s.h5").feature_names == names


def test_fingerprint_depends_on_content_only(tmp_path: Path) -> None:
    stores = [
        write(tmp_path / "a.zarr", chunk_rows=32),
        write(tmp_path / "b.zarr", chunk_rows=1, batch=50, compression="none"),
        write(tmp_path / "c.h5", chunk_rows=77, batch=100),
    ]
    X, y = some_rows(100)
    own = own_arrays(tmp_path / "d.h5", features=X.astype(np.float64), labels=y * 5)
    prints = {verified_fingerprint(open_dataset(store)) for store in stores}
    prints.add(verified_fingerprint(open_dataset({"path": own, "x": "features", "y": "labels"})))
    prints |= {open_dataset(store).recorded_fingerprint for store in stores}
    assert len(prints) == 1

    X[50, 3] = np.nextafter(X[50, 3], np.float32(9))
    changed = [own_arrays(tmp_path / "e.h5", X=X, y=y)]
    X, y = some_rows(100)
    y[7] = -y[7]
    changed.append(own_arrays(tmp_path / "f.h5", X=X, y=y))
    X, y = some_rows(100)
    changed.append(own_arrays(tmp_path / "g.h5", X=X.reshape(50, 14), y=y[:50]))
    prints |= {verified_fingerprint(open_dataset(path)) for path in changed}
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


def test_parts_are_found_from_the_store_and_by_their_own_path(tmp_path: Path) -> None:
    X, y = some_rows(10)
    for name in ("s.zarr", "s.h5"):
        parts = {"train": 7, "test": 3}
        with StoreWriter(tmp_path / name, parts, 7, StoreMetadata((0, 1))) as writer:
            writer.append("test", X[7:], y[7:])
            writer.append("train", X[:7], y[:7])
        assert open_dataset(tmp_path / name).n == 7
        assert open_dataset(tmp_path / name, part="test").n == 3
        assert open_dataset(str(tmp_path / name / "test")).n == 3
        with pytest.raises(UserError):
            open_dataset(tmp_path / name / "trian")


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


def test_damage_is_told_and_never_read_as_zeros(tmp_path: Path) -> None:
    for compression in ("zstd", "none"):
        store = write(tmp_path / f"{compression}.zarr", compression=compression)
        chunks = store / "train/X/c"
        os.truncate(chunks / "1/0", (chunks / "1/0").stat().st_size - 3)
        with pytest.raises(UserError, match="rows 32 to 64: cannot be read"):
            open_dataset(store).read(32, 64)
        (chunks / "1/0").unlink()
        with pytest.raises(UserError, match="row 32, column 0"):
            verified_fingerprint(open_dataset(store))
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


def test_a_store_can_be_moved(tmp_path: Path) -> None:
    shutil.move(write(tmp_path / "s.zarr"), tmp_path / "moved.zarr")
    data = open_dataset(tmp_path / "moved.zarr")
    assert verified_fingerprint(data) == data.recorded_fingerprint
