"""Commands start quickly: nothing heavy is imported for --help, nothing is compiled twice."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bigsvm.cli import COMMANDS, run
from tests.support.trainings import command, environment

HEAVY = ("numba", "zarr", "h5py", "pyarrow", "matplotlib", "sklearn", "dask", "scipy", "rich")
HEAVY += ("onnx",)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_imports_nothing_heavy(name: str) -> None:
    code = (
        "import sys, bigsvm.cli\n"
        "try:\n"
        f"    bigsvm.cli.main([{name!r}, '--help'])\n"
        "except SystemExit as end:\n"
        "    assert end.code == 0\n"
        f"print('loaded:', [name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True
    )
    assert "examples:" in done.stdout
    assert "loaded: []" in done.stdout


def test_the_second_start_compiles_nothing(config: Path, tmp_path: Path) -> None:
    settings = ("solver.schedule=block", "solver.max_iterations=50", "solver.hot_set=16")
    for name in ("first", "second"):  # the first may find all compiled by an earlier test
        done = subprocess.run(
            command(config, tmp_path / name, *settings),
            capture_output=True,
            text=True,
            check=True,
            env=environment() | {"NUMBA_DEBUG_CACHE": "1"},
        )
    assert "data loaded from" in done.stdout and "data saved to" not in done.stdout
    assert "compiling" not in done.stderr


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, ("3000", "1", None)),
        ({"OMP_WAIT_POLICY": "active"}, (None, "1", "active")),
        ({"GOMP_SPINCOUNT": "7", "OPENBLAS_NUM_THREADS": "2"}, ("7", "2", None)),
    ],
)
def test_threads_wait_quietly_unless_told_otherwise(
    given: dict[str, str], found: tuple[str | None, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("GOMP_SPINCOUNT", "OPENBLAS_NUM_THREADS", "OMP_WAIT_POLICY")
    for name in names:
        monkeypatch.setenv(name, "set by the test, to be undone")
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    seen = []
    run(lambda argv: seen.append(tuple(map(os.environ.get, names))) or 0)
    assert seen == [found]


BUSY = """
import sys, time
from pathlib import Path
from bigsvm import cli
from bigsvm.stores.store import open_dataset

def main(argv):
    open_dataset(Path(sys.argv[1])).labels()
    from zarr.core.sync import loop
    loop[0].call_soon_threadsafe(time.sleep, 1)  # as if others had the processor
    return 0

sys.exit(cli.run(main))
"""


def test_a_slow_end_is_a_quiet_one(stores: dict[str, Path]) -> None:
    store = str(stores["chunks of 1000"])
    done = subprocess.run(
        [sys.executable, "-c", BUSY, store], capture_output=True, text=True, env=environment()
    )
    assert (done.returncode, done.stderr) == (0, "")
