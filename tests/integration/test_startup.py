"""Commands start quickly: nothing heavy is imported for --help, nothing is compiled twice."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bigsvm.cli import COMMANDS, run
from bigsvm.config import SolverConfig
from bigsvm.core.compiled import available_threads
from bigsvm.training import compile_ahead
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


@pytest.mark.skipif(available_threads() < 2, reason="a second core compiles the steps")
def test_the_first_start_finds_the_steps_compiled_by_a_second_process(
    config: Path, tmp_path: Path
) -> None:
    settings = ("solver.schedule=block", "solver.absolute_tolerance=null", "solver.tolerance=0.1")
    done = subprocess.run(
        command(config, tmp_path / "run", *settings),
        capture_output=True,
        text=True,
        check=True,
        env=environment(2) | {"NUMBA_CACHE_DIR": str(tmp_path / "numba"), "NUMBA_DEBUG_CACHE": "1"},
    )
    saved = [line for line in done.stdout.splitlines() if "data saved to" in line]
    loaded = [line for line in done.stdout.splitlines() if "data loaded from" in line]
    assert any("panels._columns" in line for line in saved)
    for name in ("conjugate.conjugate_steps", "conjugate.find_nodes", "hot_columns._choose"):
        assert not any(name in line for line in saved)
        assert any(name in line for line in loaded)


@pytest.mark.parametrize(
    "solver",
    [SolverConfig(schedule="exact"), SolverConfig(absolute_tolerance=1e-5), SolverConfig()],
)
def test_no_second_process_where_it_would_compile_nothing(
    solver: SolverConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_ahead.compile_steps()  # so that the default, the block schedule, finds its steps cached
    monkeypatch.setattr(compile_ahead.subprocess, "Popen", None)
    with compile_ahead.compile_ahead(solver) as wait:
        wait()


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
