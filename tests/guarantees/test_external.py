"""A store reads no file but its own: what a stranger's file names could be any of the user's."""

import os
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

from bigsvm.core.errors import UserError
from bigsvm.stores.external import ALLOW
from bigsvm.stores.store import open_dataset, part_to_predict
from tests.support.small_run import run

X = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
Y = np.arange(8) % 2


def secrets(folder: Path) -> Path:
    """What the user has besides: raw bytes, and HDF5."""
    (folder / "secret").write_bytes(X.tobytes())
    with h5py.File(folder / "own.h5", "w") as file:
        file["X"], file["y"] = X, Y
        file["group/X"], file["group/y"] = X, Y
    return folder


def external_storage(file: h5py.File) -> None:
    file.create_dataset("X", (8, 4), "<f4", external=[("secret", 0, 128)])
    file["y"] = Y


def external_link(file: h5py.File) -> None:
    file["X"], file["y"] = h5py.ExternalLink("own.h5", "/X"), Y


def labels_linked(file: h5py.File) -> None:
    file["X"], file["y"] = X, h5py.ExternalLink("own.h5", "/y")


def linked_group(file: h5py.File) -> None:
    file["train"] = h5py.ExternalLink("own.h5", "/group")


def by_way_of_a_soft_link(file: h5py.File) -> None:
    file["away"] = h5py.ExternalLink("own.h5", "/")
    file["train/X"], file["train/y"] = h5py.SoftLink("/away/X"), Y


def relative_soft_link(file: h5py.File) -> None:
    file["away"] = h5py.ExternalLink("own.h5", "/X")
    file["X"], file["y"] = h5py.SoftLink("./away"), Y


def virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout((8, 4), "<f4")
    layout[:] = h5py.VirtualSource("own.h5", "X", (8, 4))
    file.create_virtual_dataset("X", layout)
    file["y"] = Y


WAYS = (external_storage, external_link, labels_linked, linked_group, by_way_of_a_soft_link)
WAYS += (relative_soft_link, virtual)


@pytest.mark.parametrize("way", WAYS)
def test_hdf5_that_names_other_files(
    way: Callable[[h5py.File], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(secrets(tmp_path))
    with h5py.File("s.h5", "w") as file:
        way(file)
    with pytest.raises(UserError, match=ALLOW) as refused:
        open_dataset("s.h5")
    assert "s.h5" in str(refused.value) and "\n" not in str(refused.value)
    monkeypatch.setenv(ALLOW, "1")
    with open_dataset("s.h5") as data:
        np.testing.assert_array_equal(data.read(0, 8), X)
        np.testing.assert_array_equal(data.labels(), 2 * Y - 1)


def test_it_is_refused_before_the_other_file_is_opened(tmp_path: Path) -> None:
    """Opened for reading, a FIFO would never answer."""
    os.mkfifo(tmp_path / "fifo")
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["X"] = h5py.ExternalLink("fifo", "/X")
        file["g"] = h5py.ExternalLink("fifo", "/")
    for attempt in (open_dataset, lambda path: open_dataset(path / "g")):
        with pytest.raises(UserError, match=ALLOW):
            attempt(tmp_path / "s.h5")
    with h5py.File(tmp_path / "s.h5", "a") as file:
        file["test"] = h5py.ExternalLink("fifo", "/")
    with pytest.raises(UserError, match=ALLOW):
        part_to_predict({"path": tmp_path / "s.h5"})
    code, _, err = run("bigsvm.inspect", tmp_path / "s.h5")
    assert code == 2 and ALLOW in err and err.count("\n") == 1


def test_inspect_says_which_arrays_are_elsewhere(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["here"] = X
        file["there"] = h5py.ExternalLink("nowhere.h5", "/X")
    code, out, _ = run("bigsvm.inspect", tmp_path / "s.h5")
    assert code == 0 and "here" in out and ALLOW in out


def test_links_within_the_file_are_followed(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["data/rows"], file["data/marks"] = X, Y
        file["train/X"], file["train/y"] = h5py.SoftLink("/data/rows"), file["data/marks"]
        file["again"] = h5py.SoftLink("train")
        file["loop"] = h5py.SoftLink("loop")
    for path in ("s.h5", "s.h5/train", "s.h5/again"):
        with open_dataset(tmp_path / path) as data:
            np.testing.assert_array_equal(data.read(0, 8), X)
    with pytest.raises(UserError):
        open_dataset({"path": tmp_path / "s.h5", "x": "loop"})


def zarr_store(path: Path) -> Path:
    group = zarr.create_group(path)
    group.create_array("X", data=X, chunks=(4, 4), compressors=None)
    group.create_array("y", data=Y)
    return path


def test_a_chunk_that_is_a_symlink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = zarr_store(secrets(tmp_path) / "s.zarr")
    chunk = store / "X" / "c" / "1" / "0"
    chunk.unlink()
    chunk.symlink_to(tmp_path / "secret")
    with pytest.raises(UserError, match=f"{chunk}.*{ALLOW}"):
        open_dataset(store)
    monkeypatch.setenv(ALLOW, "1")
    assert open_dataset(store).n == 8


@pytest.mark.parametrize("name", ["X", "y", "X/c"])
def test_a_folder_that_is_a_symlink(name: str, tmp_path: Path) -> None:
    store = zarr_store(tmp_path / "s.zarr")
    (store / name).rename(tmp_path / "elsewhere")
    (store / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=ALLOW):
        open_dataset(store)


def test_symlinks_to_a_store_and_within_it(tmp_path: Path) -> None:
    store = zarr_store(tmp_path / "s.zarr")
    (store / "X" / "c" / "1").rename(store / "moved")
    (store / "X" / "c" / "1").symlink_to("../../moved")
    (tmp_path / "link.zarr").symlink_to("s.zarr")
    with open_dataset(tmp_path / "link.zarr") as data:
        np.testing.assert_array_equal(data.read(0, 8), X)
