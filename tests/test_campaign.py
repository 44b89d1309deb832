"""Attacked trainings come to the same bits: a short stretch of scripts/campaign.py."""

import json
import subprocess
import sys
from pathlib import Path

from trainings import REPOSITORY

RUNS = 7


def test_attacks_are_survived(tmp_path: Path) -> None:
    script, tally = REPOSITORY / "scripts" / "campaign.py", tmp_path / "tally.json"
    command = [sys.executable, script, "--problems", "2", "--minutes", "30", "--tally", tally]
    for runs in (1, RUNS):  # it goes on with what it has counted
        done = subprocess.run([*command, "--runs", str(runs)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.splitlines()[-1].startswith(f"{runs} attacked runs")
    counted = json.loads(tally.read_text())
    assert counted["deviations"] == []
    assert len(counted["attacks"]) >= RUNS - 2, "two kinds need the right to mount a disk"
    assert counted["counts"]["resumes"] > RUNS / 2
