"""The robustness benchmark, on one small problem."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tests.support.trainings import HANGS, REPOSITORY, environment

PROBLEM = "german C=1 "


def robustness(data: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "scripts.benchmarks.robustness", *arguments],
        capture_output=True,
        text=True,
        timeout=HANGS,
        cwd=REPOSITORY,
        env={**environment(), "BIGSVM_DATA": str(data)},
    )


def test_results_are_printed_kept_and_reused(data_dir: Path, tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    done = robustness(data_dir.resolve(), "--problems", PROBLEM, "--out", str(out))
    assert done.returncode == 0, done.stderr
    line = done.stdout.splitlines()[2]
    assert line.startswith(PROBLEM) and "converged" in line
    records = {record["solver"]: record for record in json.loads(out.read_text())}
    assert set(records) == {"block", "exact", "intelex"}
    assert records["block"]["n"] == records["exact"]["n"] == 700
    assert records["block"]["accuracy"] > 70
    if find_spec("sklearnex") is None:
        assert "not installed" in line
        assert records["intelex"]["status"] == "not installed"
    else:
        assert records["intelex"]["accuracy"] > 70

    records["exact"]["accuracy"] = 12.34
    out.write_text(json.dumps(list(records.values())))
    done = robustness(data_dir.resolve(), "--problems", PROBLEM, "--out", str(out))
    assert "12.34" in done.stdout, "the stored result of exact is reused"


def test_killed_fits_miss_the_targets(data_dir: Path) -> None:
    done = robustness(data_dir.resolve(), "--problems", PROBLEM, "--limit", "0.000001", "--check")
    assert done.returncode == 1, done.stderr
    assert "timeout*" in done.stdout and ">1e-06" in done.stdout


def test_missing_data_is_reported(tmp_path: Path) -> None:
    done = robustness(tmp_path, "--problems", PROBLEM)
    assert done.returncode == 0, done.stderr
    assert "no data" in done.stdout and "german.numer" in done.stdout
