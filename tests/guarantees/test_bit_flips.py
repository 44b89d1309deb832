"""Damage is noticed: scripts.reliability.bit_flips with fewer flips than the 2,000 of its own."""

import subprocess
import sys

from tests.support.trainings import environment


def test_a_flipped_bit_is_reported_or_without_effect() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scripts.reliability.bit_flips", "--flips", "60"],
        capture_output=True,
        text=True,
        env=environment(),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("60 flips, 0 deviations\n")
    rows = [line.rsplit(maxsplit=4) for line in done.stdout.splitlines()[1:-1]]
    assert len(rows) == 5
    assert all(int(reported) > 0 for _, _, reported, _, _ in rows)
