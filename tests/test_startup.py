"""Commands start quickly: nothing heavy is imported for --help, nothing is compiled twice."""

import subprocess
import sys
from pathlib import Path

import pytest
from trainings import command, environment

from bigsvm.cli import COMMANDS

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


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Empty at first; what one schedule compiled, the other one need not compile again."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize("schedule", ["exact", "block"])
def test_the_second_start_compiles_nothing(
    config: Path, cache: Path, tmp_path: Path, schedule: str
) -> None:
    settings = (f"solver.schedule={schedule}", "solver.max_iterations=50", "solver.hot_set=16")
    said = []
    for start in ("first", "second"):
        done = subprocess.run(
            command(config, tmp_path / start, *settings),
            capture_output=True,
            text=True,
            check=True,
            env=environment() | {"NUMBA_CACHE_DIR": str(cache), "NUMBA_DEBUG_CACHE": "1"},
        )
        said.append(done.stdout)
    assert "data saved to" in said[0]
    assert "data loaded from" in said[1]
    assert "data saved to" not in said[1]
    assert any(cache.iterdir())


BUSY = """
import sys, time
from pathlib import Path
from bigsvm import cli
from bigsvm.store import open_dataset

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
