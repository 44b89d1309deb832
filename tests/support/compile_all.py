"""Compile what nearly all tests need: run once, before the workers of xdist start."""

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.trainings import environment

FILES = {"rows.csv": "1,2,a\n3,4.5e1,b\n", "rows.libsvm": "+1 1:2 2:3\n-1 2:3.5e1\n"}


def compile_solvers() -> None:
    """Kernels, steps and both schedules, by very small trainings."""
    from scripts.reliability.fork_server import load_everything

    load_everything()


def compile_readers() -> None:
    """The parsers, by files of two rows."""
    from bigsvm.preparation.pipeline import prepare

    with tempfile.TemporaryDirectory() as name:
        for file, text in FILES.items():
            path = Path(name, file)
            path.write_text(text)
            prepare(str(path), path.with_suffix(f"{path.suffix}.zarr"))


def compile_all() -> None:
    """Both, in two processes; numba's cache keeps what is compiled."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import {part}; {part}()"], env=environment()
        )
        for part in (compile_solvers.__name__, compile_readers.__name__)
    ]
    assert [process.wait() for process in processes] == [0, 0]
