"""A store is there whole or not at all, and nothing else is lost for it."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from bigsvm.core.errors import UserError
from bigsvm.stores.store import open_dataset
from bigsvm.stores.writer import StoreMetadata, StoreWriter
from tests.support.small_run import run
from tests.support.small_stores import FORMATS, some_rows, write


@pytest.mark.parametrize("name", FORMATS)
def test_a_failed_write_leaves_nothing(tmp_path: Path, name: str) -> None:
    X, y = some_rows(10)
    with (
        pytest.raises(KeyboardInterrupt),
        StoreWriter(
            tmp_path / name, {"train": 10}, 7, StoreMetadata((0, 1)), chunk_rows=2
        ) as writer,
    ):
        writer.append("train", X[:5], y[:5])
        assert not (tmp_path / name).exists()
        raise KeyboardInterrupt
    with (
        pytest.raises(ValueError, match="got 5 of its 10"),
        StoreWriter(tmp_path / name, {"train": 10}, 7, StoreMetadata((0, 1))) as writer,
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
        StoreWriter(tmp_path / name, {"train": 5}, 7, StoreMetadata((0, 1)), overwrite=True),
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
        (tmp_path / "s.npy", {}, r"must end in .zarr, .h5 or .hdf5"),
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
    with StoreWriter(tmp_path / "s.zarr", {"train": 10}, 7, StoreMetadata((0, 1))) as writer:
        assert not (leftover / "rubbish").exists()
        with pytest.raises(UserError, match="another process is writing it"):
            write(tmp_path / "s.zarr")
        writer.append("train", *some_rows(10))
    assert open_dataset(tmp_path / "s.zarr").n == 10
    assert not leftover.exists()


def test_the_power_goes_while_a_store_is_replaced(tmp_path: Path) -> None:
    """Between the two names the old store is aside, and the new one has no name yet."""
    store, partial = tmp_path / "s.zarr", tmp_path / ".s.zarr.partial"
    for overwrite in (False, True):
        write(store, n=10, overwrite=overwrite)
        partial.mkdir()
        store.rename(partial / "replaced")
        if not overwrite:
            with pytest.raises(UserError, match="exists already"):
                write(store, n=20)
        else:
            with (
                pytest.raises(RuntimeError),
                StoreWriter(store, {"train": 5}, 7, StoreMetadata((0, 1)), overwrite=True),
            ):
                raise RuntimeError
        assert open_dataset(store).n == 10
        assert [path.name for path in tmp_path.iterdir()] == ["s.zarr"]


def test_interrupted_while_a_store_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "s.zarr", n=10)
    replace = Path.replace

    def interrupted(path: Path, target: Path) -> Path:
        if target == tmp_path / "s.zarr":
            raise KeyboardInterrupt
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "s.zarr", n=20, overwrite=True)
    assert open_dataset(tmp_path / "s.zarr").n == 10


@pytest.mark.parametrize("purpose", ["partial", "spill"])
@pytest.mark.parametrize("kind", ["a file", "a symlink", "a dangling symlink", "a FIFO"])
def test_something_else_under_the_hidden_name(tmp_path: Path, kind: str, purpose: str) -> None:
    """This was an endless loop, without a word."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").touch()
    leftover = tmp_path / f".a.zarr.{purpose}"
    if kind == "a file":
        leftover.touch()
    elif kind == "a FIFO":
        os.mkfifo(leftover)
    else:
        leftover.symlink_to(elsewhere if kind == "a symlink" else tmp_path / "nowhere")
    code, _, err = run("bigsvm.prepare", "synthetic", tmp_path / "a.zarr", "--rows", 200)
    assert code == 2 and err.count("\n") == 1
    assert str(leftover) in err and "remove it" in err
    assert [path.name for path in elsewhere.iterdir()] == ["precious"]
    assert {path.name for path in tmp_path.iterdir()} == {"elsewhere", leftover.name}


def test_a_leftover_that_cannot_be_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".s.zarr.partial").mkdir()

    def refused(path: Path, **_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(shutil, "rmtree", refused)
    with pytest.raises(UserError, match=r"\.s\.zarr\.partial is in the way \(Permission denied\)"):
        write(tmp_path / "s.zarr")
