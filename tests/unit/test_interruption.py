"""Signals: the first ends the loop in order, the second at once."""

import signal
import subprocess
import sys

import pytest

TWICE = """
import signal
from bigsvm.terminal.signals import GracefulExit

with GracefulExit().handle_signals() as graceful_exit:
    {inside}
    assert graceful_exit()
{after}
print("still here")
"""
RAISED = "signal.raise_signal(signal.SIGINT)"


@pytest.mark.parametrize(
    ("inside", "after", "code"),
    [(RAISED, "", 0), (f"{RAISED}; {RAISED}", "", -2), (RAISED, RAISED, -2)],
    ids=["once", "twice", "once more while it leaves"],
)
def test_the_second_one_ends_it_without_a_traceback(inside: str, after: str, code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TWICE.format(inside=inside, after=after)],
        capture_output=True,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert done.returncode == code
    assert ("still here" in done.stdout) == (code == 0)
    assert "Traceback" not in done.stderr


def test_ctrl_c_after_a_command_is_done_ends_it_without_a_traceback() -> None:
    """As when it is pressed twice: the first ends the command, the second finds it leaving."""
    script = f"""
import signal, sys
from bigsvm import cli

def interrupted(argv):
    {RAISED}

code = cli.run(interrupted)
assert code == 130
{RAISED}
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert (done.returncode, done.stderr) == (-2, "")
