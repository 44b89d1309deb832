"""The run directory: one trainer at a time, every file whole, no other files touched."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bigsvm.core.errors import UserError
from bigsvm.files.atomic import write_text
from bigsvm.training.run_dir import RunDir

OURS = ("config.yaml", "metrics.jsonl", "model.safetensors", "summary.json", "evaluation.csv")
HOLDER = """
import sys, time
from pathlib import Path
from bigsvm.training.run_dir import RunDir
with RunDir(Path(sys.argv[1])).locked():
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path / "runs" / "mine")


def hold(path: Path) -> subprocess.Popen[str]:
    """A real other trainer."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


def a_former_process() -> int:
    """A process number that is no longer in use."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_two_trainers_never_share_it(run_dir: RunDir) -> None:
    with hold(run_dir.path) as holder:
        try:
            leftover = run_dir.snapshots / f".model-00000001.safetensors.{holder.pid}.tmp"
            leftover.touch()  # the other one is just writing it
            refused = pytest.raises(UserError, match=f"{run_dir.path}: another trainer uses")
            with refused, run_dir.locked():
                pass
            assert leftover.exists()
            with RunDir(run_dir.path.with_name("other")).locked():
                pass
        finally:
            holder.send_signal(signal.SIGKILL)
    with run_dir.locked():
        assert not leftover.exists()


def test_a_trainer_holds_it_to_its_end(run_dir: RunDir) -> None:
    again = RunDir(run_dir.path)
    with run_dir.locked(), pytest.raises(UserError, match="another trainer"), again.locked():
        pass
    with pytest.raises(ZeroDivisionError), run_dir.locked():
        raise ZeroDivisionError
    with run_dir.locked():
        assert run_dir.snapshots.is_dir()
        assert run_dir.checkpoints.is_dir()


def test_a_path_that_can_be_no_run_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UserError, match="cannot be a run directory"), RunDir(path).locked():
            pass


def test_only_our_leftovers_are_swept(run_dir: RunDir) -> None:
    run_dir.path.mkdir(parents=True)
    ours = run_dir.path / f".summary.json.{a_former_process()}.tmp"
    ours.touch()
    others = [run_dir.path / name for name in (".notes.tmp", "x.tmp", ".vimrc", ".a.b.tmp")]
    for path in others:
        path.touch()
    (run_dir.path / ".folder.tmp").mkdir()
    with run_dir.locked():
        pass
    assert not ours.exists()
    assert all(path.exists() for path in others)


def test_leftovers_of_a_process_of_our_own_number_are_swept(run_dir: RunDir) -> None:
    """In a container every trainer may be process 1."""
    run_dir.snapshots.mkdir(parents=True)
    leftover = run_dir.snapshots / f".model-00000001.safetensors.{os.getpid()}.tmp"
    leftover.touch()
    with run_dir.locked():
        assert not leftover.exists()


def filled(run_dir: RunDir) -> None:
    run_dir.snapshot_path(5).touch()
    (run_dir.checkpoints / "checkpoint-0000000005.safetensors").touch()
    for name in OURS:
        (run_dir.path / name).write_text("old")


def test_cut_off_while_it_is_cleared_there_is_nothing_to_resume_from(
    run_dir: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlink = Path.unlink

    def cut_off(path: Path, missing_ok: bool = False) -> None:
        if path.parent == run_dir.snapshots:
            raise KeyboardInterrupt
        unlink(path, missing_ok)

    with run_dir.locked():
        filled(run_dir)
        monkeypatch.setattr(Path, "unlink", cut_off)
        with pytest.raises(KeyboardInterrupt):
            run_dir.clear()
        assert not list(run_dir.checkpoints.iterdir())


def test_clear_removes_what_a_run_left_and_nothing_else(run_dir: RunDir) -> None:
    with run_dir.locked():
        filled(run_dir)
        theirs = [
            run_dir.path / "notes.txt",
            run_dir.path / "data.zarr",
            run_dir.snapshots / "notes.txt",
            run_dir.checkpoints / "why.md",
        ]
        for path in theirs:
            path.write_text("mine")
        run_dir.clear()
        left = {str(path.relative_to(run_dir.path)) for path in run_dir.path.rglob("*")}
    folders = {"snapshots", "checkpoints"}
    assert left - folders - {"config.yaml"} == {str(p.relative_to(run_dir.path)) for p in theirs}
    assert folders <= left


def test_clear_with_folders_on_another_disk(run_dir: RunDir, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    run_dir.path.mkdir(parents=True)
    run_dir.snapshots.symlink_to(elsewhere)
    with run_dir.locked():
        filled(run_dir)
        run_dir.clear()
        assert run_dir.snapshots.is_dir()
    assert not (elsewhere / run_dir.snapshot_path(5).name).exists()


def test_metrics_are_rewound(run_dir: RunDir) -> None:
    with run_dir.locked():
        run_dir.begin("a", 5)
        assert not run_dir.metrics.exists()
        for iteration in (1, 5, 6, 9):
            run_dir.append_metrics({"iteration": iteration, "gap": 0.1})
        run_dir.summary.write_text("done")
        run_dir.begin("b", 5)
        assert run_dir.config.read_text() == "b"
        assert not run_dir.summary.exists(), "what it says of the end no longer holds"
        lines = run_dir.metrics.read_text().splitlines()
        assert [json.loads(line)["iteration"] for line in lines] == [1, 5]
        run_dir.append_metrics({"iteration": 7})
        run_dir.begin("c", 0)
        assert run_dir.metrics.read_text() == ""


@pytest.mark.parametrize(
    "torn",
    [b'{"iteration": 3, "ga', b"\0\0\0\0", b"\xff\xfe", b'{"iteration"', b"4", b"{}", b"null"],
)
def test_a_torn_last_line_is_dropped(run_dir: RunDir, torn: bytes) -> None:
    with run_dir.locked():
        run_dir.append_metrics({"iteration": 1})
        with run_dir.metrics.open("ab") as file:
            file.write(torn)
        run_dir.begin("", 10)
        run_dir.append_metrics({"iteration": 2})
    lines = run_dir.metrics.read_text().splitlines()
    assert [json.loads(line)["iteration"] for line in lines] == [1, 2]


def test_small_files_are_replaced_whole(run_dir: RunDir) -> None:
    with run_dir.locked():
        write_text(run_dir.summary, "old")
        write_text(run_dir.summary, "é")
        assert run_dir.summary.read_bytes() == "é".encode()
        with pytest.raises(UnicodeEncodeError):
            write_text(run_dir.summary, "\ud800")
        assert run_dir.summary.read_bytes() == "é".encode()
    assert {path.name for path in run_dir.path.iterdir()} == {
        "summary.json",
        "snapshots",
        "checkpoints",
    }


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere; see test_separate_runs")
def test_read_only(run_dir: RunDir) -> None:
    run_dir.path.mkdir(parents=True)
    run_dir.path.chmod(0o500)
    with pytest.raises(UserError, match="is not writable"), run_dir.locked():
        pass
