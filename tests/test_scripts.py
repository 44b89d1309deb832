"""Every script that can be called says what it is for."""

import subprocess
import sys
from pathlib import Path

import pytest
from trainings import REPOSITORY, environment

SCRIPTS = [p for p in sorted((REPOSITORY / "scripts").glob("*.py")) if "__main__" in p.read_text()]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_help(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(path), "--help"], capture_output=True, text=True, env=environment()
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: ")
