"""Attacked trainings come to the same bits: scripts/campaign.py, each attack once."""

import subprocess
import sys

from trainings import REPOSITORY


def test_each_attack_is_survived() -> None:
    script = REPOSITORY / "scripts" / "campaign.py"
    command = [sys.executable, script, "--runs", "14", "--problems", "2", "--minutes", "30"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    runs = done.stdout.splitlines()[-1].split()[0]
    assert int(runs) == 14
