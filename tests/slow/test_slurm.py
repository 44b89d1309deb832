"""The job scripts for Slurm, with srun, scontrol and scancel replaced by the least of them.

On a real Slurm they are tried by ``python -m scripts.slurm.one_node``.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clusters import until
from tests.support.trainings import (
    HANGS,
    REPOSITORY,
    command,
    environment,
    final,
    newest_checkpoint,
    snapshots,
)

SCRIPTS = REPOSITORY / "scripts" / "slurm"
SRUN = """#!/usr/bin/env bash
ntasks=$SLURM_NTASKS
while [[ $1 == --* ]]; do
    [[ $1 == --ntasks=* ]] && ntasks=${1#--ntasks=}
    shift
done
echo $$ >> "$SCONTROL_LOG.steps"
trap 'kill $(jobs -p)' TERM
for _ in $(seq "$ntasks"); do "$@" & done
wait
wait
"""
SCONTROL = """#!/usr/bin/env bash
echo "$@" >> "$SCONTROL_LOG"
"""
SCANCEL = """#!/usr/bin/env bash
[[ $* == "--quiet --signal=INT $SLURM_JOB_ID" ]] && kill $(cat "$SCONTROL_LOG.steps")
rm "$SCONTROL_LOG.steps"
"""


@pytest.fixture
def slurm(tmp_path: Path) -> dict[str, str]:
    """The environment of a job with two tasks."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL), ("scancel", SCANCEL)):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    python = Path(sys.executable).parent
    return {
        **environment(),
        "PATH": f"{tools}:{python}:{os.environ['PATH']}",
        "SCONTROL_LOG": str(tmp_path / "scontrol"),
        "SLURM_JOB_ID": "17",
        "SLURM_NTASKS": "2",
    }


@pytest.fixture
def jobs(slurm: dict[str, str], tmp_path: Path) -> Iterator[list["subprocess.Popen[str]"]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for job in started:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
        job.communicate()


def submit(jobs: list, slurm: dict[str, str], script: str, *arguments: str) -> subprocess.Popen:
    job = subprocess.Popen(
        ["bash", str(SCRIPTS / script), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=slurm,
        cwd=Path(slurm["SCONTROL_LOG"]).parent,
        start_new_session=True,
    )
    jobs.append(job)
    return job


def test_time_is_up_and_the_job_goes_back_into_the_queue(
    jobs: list, slurm: dict[str, str], config: Path, tmp_path: Path
) -> None:
    often = "run.checkpoint_every=5"
    settings = ("solver.schedule=block", "solver.hot_set=16", "solver.max_iterations=900", often)
    run_dir, log = tmp_path / "run", Path(slurm["SCONTROL_LOG"])
    arguments = command(config, run_dir, *settings)[3:]
    first = submit(jobs, slurm, "train.sbatch", *arguments)
    until(lambda: newest_checkpoint(run_dir) > 0)
    first.send_signal(signal.SIGUSR1)
    said, _ = first.communicate(timeout=HANGS)
    assert first.returncode == 128 + signal.SIGTERM, said
    assert "distributed" not in said, "the log reads like that of a training"
    assert log.read_text() == "requeue 17\n"
    assert newest_checkpoint(run_dir) > 0
    assert not (run_dir / "model.safetensors").exists()
    assert not list(tmp_path.glob(".dask-*"))

    again = submit(jobs, {**slurm, "SLURM_RESTART_COUNT": "1"}, "train.sbatch", *arguments)
    said, _ = again.communicate(timeout=HANGS)
    assert again.returncode == 0, said
    assert log.read_text() == "requeue 17\n", "only the first one was cut off"
    alone = tmp_path / "alone"
    subprocess.run(command(config, alone, *settings), check=True, env=environment())
    assert final(run_dir) == final(alone)
    assert snapshots(run_dir) == snapshots(alone)


def test_a_mistake_is_not_tried_again(
    jobs: list, slurm: dict[str, str], config: Path, tmp_path: Path
) -> None:
    job = submit(jobs, slurm, "train.sbatch", str(config), "--set", "model.C=-1")
    said, _ = job.communicate(timeout=HANGS)
    assert job.returncode == 2
    assert "error: " in said
    assert not Path(slurm["SCONTROL_LOG"]).exists()


def test_without_slurm_the_trial_of_the_jobs_is_skipped() -> None:
    script = [sys.executable, "-m", "scripts.slurm.one_node"]
    nothing = {**environment(), "PATH": "/nonexistent"}
    done = subprocess.run(script, env=nothing, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert line.startswith("skipped: munged, slurmctld, ") and "apt-get install" in line
