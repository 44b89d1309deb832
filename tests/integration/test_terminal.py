"""A terminal that closes under a training, as when a connection to a far machine is lost."""

import fcntl
import os
import pty
import shlex
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.support.trainings import (
    HANGS,
    REPOSITORY,
    Train,
    assert_same_run,
    caught,
    command,
    environment,
    newest_checkpoint,
    summary,
)


@pytest.mark.parametrize("nohup", [False, True])
def test_a_training_outlives_its_terminal(
    nohup: bool, config: Path, train: Train, straight: Path, tmp_path: Path
) -> None:
    run_dir, handler = tmp_path / "run", signal.SIG_IGN if nohup else signal.SIG_DFL
    ends = []

    def prepare() -> None:
        signal.signal(signal.SIGHUP, handler)
        fcntl.ioctl(1, termios.TIOCSCTTY, 0)

    def begin() -> "subprocess.Popen[str]":
        end, terminal = pty.openpty()
        ends.append(end)
        process = subprocess.Popen(
            command(config, run_dir),
            stdin=subprocess.DEVNULL,
            stdout=terminal,
            stderr=terminal,
            env=environment() | {"TERM": "xterm"},
            start_new_session=True,
            preexec_fn=prepare,
            text=True,
        )
        os.close(terminal)
        return process

    process = caught(begin, run_dir, lambda: newest_checkpoint(run_dir) > 0)
    for end in ends:
        os.close(end)
    process.send_signal(signal.SIGCONT)
    code = process.wait(timeout=HANGS)
    if nohup:  # it continued, though its last messages are lost
        assert code == 0
        assert summary(run_dir)["status"] == "converged"
    else:
        assert code == 128 + signal.SIGHUP
        assert summary(run_dir)["status"] == "interrupted"
        assert newest_checkpoint(run_dir) == summary(run_dir)["iterations"] > 0
        train(run_dir)
    assert_same_run(run_dir, straight)


def test_a_terminal_that_was_gone_before_the_first_word(
    config: Path, straight: Path, tmp_path: Path
) -> None:
    """Without a signal: every word that is said fails, from the first bar on."""
    end, terminal = pty.openpty()
    os.close(end)
    done = subprocess.run(
        command(config, tmp_path / "run"),
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=terminal,
        env=environment() | {"TERM": "xterm"},
        timeout=HANGS,
    )
    os.close(terminal)
    assert done.returncode == 0
    assert_same_run(tmp_path / "run", straight)


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_streams_that_are_closed(closed: str, tmp_path: Path) -> None:
    """Python has None in their place."""
    model = REPOSITORY / "tests" / "support" / "formats" / "model-3.safetensors"
    for path, code in ((model, 0), (tmp_path / "none.safetensors", 2)):
        inspect = f"{shlex.join([sys.executable, '-m', 'bigsvm.inspect', str(path)])} {closed}"
        done = subprocess.run(["sh", "-c", inspect], capture_output=True, text=True)
        assert done.returncode == code
        assert "Traceback" not in done.stderr


def test_a_mistake_with_closed_output_is_still_a_mistake(tmp_path: Path) -> None:
    end, terminal = pty.openpty()
    os.close(end)
    done = subprocess.run(
        command(tmp_path / "none.yaml", tmp_path / "run"),
        stdout=terminal,
        stderr=terminal,
        env=environment(),
        timeout=HANGS,
    )
    os.close(terminal)
    assert done.returncode == 2
