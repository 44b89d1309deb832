"""Files are written atomically, and never through a planted symlink."""

import errno
import os
import re
import stat
import subprocess
from pathlib import Path

import psutil
import pytest

from bigsvm.core.errors import UserError
from bigsvm.files.atomic import atomic_write, open_no_symlink, remove_stale_temporaries
from bigsvm.stores.store import open_dataset
from bigsvm.training.run_dir import RunDir
from tests.support.small_stores import write


def a_former_process() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_a_planted_symlink_is_not_followed(tmp_path: Path) -> None:
    """The name was `.NAME.PID.tmp`: in a shared directory it was easily foreseen."""
    precious = tmp_path / "precious"
    precious.write_text("years of work")
    for process in range(os.getpid() - 5, os.getpid() + 5):
        (tmp_path / f".summary.json.{process}.tmp").symlink_to(precious)
    with atomic_write(tmp_path / "summary.json") as temporary:
        temporary.write_text("{}")
    assert precious.read_text() == "years of work"
    assert (tmp_path / "summary.json").read_text() == "{}"


def test_the_name_cannot_be_foreseen_and_the_file_is_new(tmp_path: Path) -> None:
    seen = set()
    for _ in range(3):
        with atomic_write(tmp_path / "a") as temporary:
            assert temporary.stat().st_size == 0 and not temporary.is_symlink()
            assert re.fullmatch(rf"\.a\.{os.getpid()}\.[0-9a-f]{{16}}\.tmp", temporary.name)
            seen.add(temporary.name)
    assert len(seen) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_temporary_that_was_exchanged_is_not_published(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of the user")
    with (
        pytest.raises(UserError, match="replaced this file"),
        atomic_write(tmp_path / "model") as temporary,
    ):
        temporary.unlink()
        temporary.symlink_to(tmp_path / "secret")
    assert {path.name for path in tmp_path.iterdir()} == {"secret"}


def test_metrics_are_not_appended_to_another_file(tmp_path: Path) -> None:
    run_dir = RunDir(tmp_path / "run")
    run_dir.path.mkdir()
    precious = tmp_path / "precious"
    precious.write_text("years of work")
    run_dir.metrics.symlink_to(precious)
    with pytest.raises(UserError, match=r"metrics\.jsonl: is a symlink"):
        run_dir.append_metrics({"iteration": 1})
    assert precious.read_text() == "years of work"


def test_an_ordinary_file_is_opened_as_usual(tmp_path: Path) -> None:
    for text in ("a", "b"):
        with open_no_symlink(tmp_path / "x", "a") as file:
            file.write(text)
    assert (tmp_path / "x").read_text() == "ab"
    with pytest.raises(FileNotFoundError):
        open_no_symlink(tmp_path / "no such folder" / "x", "a")


def test_temporaries_of_former_processes_are_swept(tmp_path: Path) -> None:
    gone = a_former_process()
    ours = [f".a.json.{gone}.0123456789abcdef.tmp", f".b c.{gone}.tmp"]
    others = [f".a.{os.getppid()}.0123456789abcdef.tmp", f".{gone}.my-long-notes-of-today.tmp"]
    for name in ours + others:
        (tmp_path / name).touch()
    link = tmp_path / f".c.{gone}.0123456789abcdef.tmp"
    link.symlink_to(tmp_path / others[0])
    remove_stale_temporaries(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {*others, link.name}


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.ENOSYS])
def test_a_file_system_without_fsync_of_folders(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with atomic_write(tmp_path / "a") as temporary:
        temporary.write_text("there")
    assert (tmp_path / "a").read_text() == "there"
    write(tmp_path / "s.zarr")
    assert open_dataset(tmp_path / "s.zarr").n == 100


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_data_that_did_not_reach_the_disk_gets_no_name(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError) as failure, atomic_write(tmp_path / "a") as temporary:
        temporary.write_text("lost")
    assert failure.value.filename == str(tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_a_process_is_told_without_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS has none."""
    (tmp_path / ".a.4711.0123456789abcdef.tmp").touch()
    monkeypatch.setattr(psutil, "pid_exists", lambda process: process == 4711)
    remove_stale_temporaries(tmp_path)
    assert any(tmp_path.iterdir())
    monkeypatch.setattr(psutil, "pid_exists", lambda process: False)
    remove_stale_temporaries(tmp_path)
    assert not any(tmp_path.iterdir())
