"""Real training processes, and the files they write."""

import atexit
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from scripts.reliability.fork_server import ForkServer

REPOSITORY = Path(__file__).resolve().parents[2]
EVERY = 300  # iterations between snapshots
ROWS = 3000
TOLERANCE = 2e-4
HANGS = 1200  # seconds: nothing takes so long, whatever else shares the machine
Train = Callable[..., subprocess.CompletedProcess[str]]


def environment(threads: int = 1) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY),
        "BIGSVM_CACHE": "/nonexistent",  # nothing here may need it
        "NUMBA_NUM_THREADS": str(threads),
    }


def command(config: Path, run_dir: Path, *arguments: str) -> list[str]:
    """The command of a training; arguments with an = in them are for --set."""
    sets = [part for text in arguments if "=" in text for part in ("--set", text)]
    options = [text for text in arguments if "=" not in text]
    run = [sys.executable, "-m", "bigsvm.train", str(config), "--run-dir", str(run_dir)]
    return [*run, *options, *sets]


@cache
def fork_server() -> ForkServer:
    made = ForkServer(NUMBA_NUM_THREADS="1")
    atexit.register(made.close)
    return made


def run_quickly(
    command: list[str], environment: dict[str, str], folder: Path | None = None
) -> "subprocess.CompletedProcess[str]":
    """`subprocess.run` of a Python command with one thread, forked from one that has all loaded."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        files = out.fileno(), err.fileno()
        process = fork_server().start(command[1:], *files, folder or Path.cwd(), False, environment)
        try:
            code = process.wait(HANGS)
        finally:
            process.kill()
        said = [os.pread(file, 2**24, 0).decode() for file in files]
    return subprocess.CompletedProcess(command, code, *said)


def trainer(config: Path) -> Train:
    """Trains to the end, and expects a certain exit code."""

    def train(run_dir: Path, *arguments: str, code: int = 0) -> Any:
        done = run_quickly(command(config, run_dir, *arguments), environment())
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == code, done.stderr
        return done

    return train


def summary(run_dir: Path) -> dict[str, Any]:
    return json.loads((run_dir / "summary.json").read_text())


def final(run_dir: Path) -> bytes:
    return (run_dir / "model.safetensors").read_bytes()


def snapshots(run_dir: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (run_dir / "snapshots").iterdir()}


def snapshot(run_dir: Path, iteration: int) -> bytes:
    return (run_dir / "snapshots" / f"model-{iteration:08d}.safetensors").read_bytes()


def newest_checkpoint(run_dir: Path) -> int:
    """Its iteration; 0 where there is none."""
    paths = (run_dir / "checkpoints").glob("checkpoint-*.safetensors")
    return max((int(path.stem.removeprefix("checkpoint-")) for path in paths), default=0)


def reported(run_dir: Path) -> list[int]:
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["iteration"] for line in lines]


def everything(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Content and time of all files below a folder."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def resumed_at(stderr: str) -> int:
    line = next(line for line in stderr.splitlines() if line.startswith("resuming at iteration"))
    return int(line.split()[3].strip(",").replace(",", ""))


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    """The only line of a refusal, but for the one that a slow machine is told."""
    lines = [line for line in done.stderr.splitlines() if not line.startswith("compiling")]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("error: ")
    return lines[0]


def wait_until(condition: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + HANGS
    while True:
        ended = process.poll() is not None
        if condition():
            return
        assert not ended, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)


Begin = Callable[[], "subprocess.Popen[str]"]


def caught(begin: Begin, run_dir: Path, ready: Callable[[], bool]) -> "subprocess.Popen[str]":
    """A training that was stopped (SIGSTOP) as soon as it was ready, not yet half-way.

    A fast machine may be past that too soon: then it is started over.
    """
    half_way = run_dir / "snapshots" / "model-00001500.safetensors"
    for _ in range(20):
        process = begin()
        wait_until(lambda p=process: ready() or p.poll() is not None, process)
        process.send_signal(signal.SIGSTOP)
        if process.poll() is None:
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        if process.poll() is None and not half_way.exists():
            return process
        process.kill()
        _, said = process.communicate()
        assert process.returncode in (0, -signal.SIGKILL), said
        shutil.rmtree(run_dir)
    raise AssertionError("it was never seen on its way")


def killed(start: Any, run_dir: Path, *arguments: str, times: int) -> None:
    """Kill -9 a training, once before there is anything, then soon after some new checkpoint.

    There are so many checkpoints that it lasts; one that still ends first is started over.
    """
    chance = random.Random(times)
    kills = 0
    for _ in range(10 * times):
        process = start(run_dir, *arguments, "run.checkpoint_every=10")
        before = newest_checkpoint(run_dir)
        if kills:
            wait_until(
                lambda p=process, b=before: newest_checkpoint(run_dir) > b or p.poll() is not None,
                process,
            )
        time.sleep(chance.uniform(0, 0.02))
        process.kill()
        _, said = process.communicate()
        if process.returncode == 0 or (run_dir / "summary.json").exists():
            shutil.rmtree(run_dir)
            continue
        assert process.returncode == -signal.SIGKILL, said
        if before:
            assert resumed_at(said) == before
        kills += 1
        if kills == times:
            return
    raise AssertionError("it always came to its end before it could be killed")


def assert_same_run(run_dir: Path, straight: Path) -> None:
    """All but times and work is what the undisturbed run has, and nothing temporary is left."""
    assert final(run_dir) == final(straight)
    assert snapshots(run_dir) == snapshots(straight)
    ours, theirs = summary(run_dir), summary(straight)
    for key in ours.keys() - {"train_seconds", "peak_rss_bytes", "kernel_values", "work"}:
        assert ours[key] == theirs[key], key
    iterations = reported(run_dir)
    assert iterations == sorted(iterations)
    assert not [path for path in run_dir.rglob("*") if path.name.startswith(".")]
