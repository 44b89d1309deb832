"""Every script that can be called says what it is for."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.trainings import REPOSITORY, environment

STARTED_BY_OTHERS = ("solvers.py", "peers_worker.py", "fork_server.py")
SCRIPTS = [
    path.relative_to(REPOSITORY)
    for path in sorted((REPOSITORY / "scripts").rglob("*.py"))
    if "__main__" in path.read_text() and path.name not in STARTED_BY_OTHERS
]


@pytest.mark.parametrize("path", SCRIPTS, ids=str)
def test_help(path: Path) -> None:
    module = ".".join(path.with_suffix("").parts)
    done = subprocess.run(
        [sys.executable, "-m", module, "--help"], capture_output=True, text=True, env=environment()
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: ")


def test_reproduce_is_also_called_by_its_file() -> None:
    script = REPOSITORY / "scripts" / "reproduce.py"
    done = subprocess.run([sys.executable, script, "--help"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "python -m scripts.paper.reproduce" in done.stdout


@pytest.mark.parametrize("folder", ["benchmarks", "paper", "reliability", "slurm"])
def test_every_folder_describes_its_scripts(folder: str) -> None:
    text = (REPOSITORY / "scripts" / folder / "README.md").read_text()
    for path in SCRIPTS:
        if path.parent.name == folder:
            assert f"scripts.{folder}.{path.stem}" in text, path
