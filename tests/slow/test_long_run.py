"""scripts.reliability.long_run: seconds instead of an hour, and whether it would notice a leak."""

import subprocess
import sys
from pathlib import Path

import numpy as np

from scripts.reliability.long_run import verdicts
from tests.support.trainings import environment


def test_some_seconds_of_it(tmp_path: Path) -> None:
    picture = tmp_path / "picture.png"
    sizes = ("--rows", "30000", "--growth", "2")  # caches are filling still
    command = [sys.executable, "-m", "scripts.reliability.long_run", "--minutes", "0.25", *sizes]
    command += ["--picture", str(picture)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "30,000 x 50 rows" in done.stdout
    assert [line.split()[0] for line in done.stdout.splitlines()[2:]] == [
        "memory",
        "open",
        "threads",
    ]
    assert picture.read_bytes().startswith(b"\x89PNG")


def watched(memory: np.ndarray, files: np.ndarray) -> np.ndarray:
    seconds = np.arange(len(memory), dtype=float)
    return np.column_stack([seconds, memory, files, np.full(len(memory), 9.0)])


def test_noise_is_no_growth_and_a_leak_is() -> None:
    generator = np.random.default_rng(0)
    warm_up = np.minimum(np.arange(3600) / 600, 1.0)
    memory = 400 * warm_up + 20 * generator.random(3600)
    files = 12.0 + generator.integers(0, 3, 3600)
    assert not verdicts(watched(memory, files), 0.02)[1]
    leak = np.arange(3600) / 3600
    assert verdicts(watched(memory + 16 * leak, files), 0.02)[1]
    assert verdicts(watched(memory, files + np.floor(3 * leak)), 0.02)[1]
