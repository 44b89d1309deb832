"""A training in one allocation, started by a single srun: dask-jobqueue's SLURMRunner.

    pip install dask-jobqueue
    srun --ntasks 6 --cpus-per-task 8 python -m scripts.slurm.slurm_runner configs/miniboone.yaml

Of the tasks one is the scheduler, one the trainer, the others are workers. The arguments are those
of `bigsvm.train`. Unlike train.sbatch it does not requeue itself: the same command resumes.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path


def main() -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    _, of_the_training = parser.parse_known_args()
    os.environ.setdefault("DASK_LOGGING__DISTRIBUTED", "critical")  # read when Dask is imported
    from dask_jobqueue.slurm import SLURMRunner

    workers = {"nthreads": int(os.environ.get("SLURM_CPUS_PER_TASK", 1)), "memory_limit": 0}
    try:
        runner = SLURMRunner(
            scheduler_file=str(Path.cwd() / ".dask-{job_id}.json"),
            scheduler_options={"dashboard": False, "dashboard_address": ":0"},
            worker_options=workers,
        )
    except KeyboardInterrupt:  # how the scheduler and the workers leave
        return 0
    with runner:  # only in the task that trains
        file = runner.scheduler_file
        settings = {"kind": "scheduler_file", "scheduler_file": file, "workers": runner.n_workers}
        options = [word for key in settings for word in ("--set", f"cluster.{key}={settings[key]}")]
        code = subprocess.call([sys.executable, "-m", "bigsvm.train", *of_the_training, *options])
    file.unlink(missing_ok=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
