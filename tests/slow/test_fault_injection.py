"""Attacked trainings finish with the same bits: a short stretch of fault injection."""

import json
import subprocess
import sys
from pathlib import Path

from tests.support.trainings import REPOSITORY

RUNS = 5


def test_attacks_are_survived(tmp_path: Path) -> None:
    tally = tmp_path / "tally.json"
    script = ["-m", "scripts.reliability.fault_injection"]
    command = [sys.executable, *script, "--problems", "2", "--minutes", "30", "--tally", tally]
    for runs in (1, RUNS):  # the second adds to the counts of the first
        done = subprocess.run(
            [*command, "--runs", str(runs)], capture_output=True, text=True, cwd=REPOSITORY
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.splitlines()[-1].startswith(f"{runs} attacked runs")
    counted = json.loads(tally.read_text())
    assert counted["deviations"] == []
    assert len(counted["attacks"]) >= RUNS - 2, "two kinds need the right to mount a disk"
    assert counted["counts"]["resumes"] > RUNS / 2
