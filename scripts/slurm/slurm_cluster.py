"""A training whose workers are Slurm jobs that come and go: dask-jobqueue's SLURMCluster.

    pip install dask-jobqueue
    python -m scripts.slurm.slurm_cluster --cores 16 --memory 4GiB --jobs 1 8 configs/miniboone.yaml

Runs on a login node, or in a job. The cluster has as many jobs as the queue admits, between the two
numbers of `--jobs`; a job whose time is up is replaced by another one, and the training does not
notice. All other arguments are those of `bigsvm.train`.
"""

import argparse
import os
import subprocess
import sys

# Your cluster: options of Slurm, and what a job must do before Python works there.
DIRECTIVES: list[str] = []  # "--partition=compute", "--account=project"
PROLOGUE: list[str] = []  # "module load python/3.12", "source .venv/bin/activate"


def main() -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--cores", type=int, default=16, metavar="N", help="of a job (default 16)")
    add("--memory", default="4GiB", metavar="SIZE", help="of a job: more than solver.memory_limit")
    add("--jobs", type=int, nargs=2, default=(1, 8), metavar=("MIN", "MAX"), help="default 1 8")
    add("--time", default="04:00:00", metavar="H:M:S", help="limit of a job (default 04:00:00)")
    arguments, of_the_training = parser.parse_known_args()
    os.environ.setdefault("DASK_LOGGING__DISTRIBUTED", "critical")  # read when Dask is imported
    from dask_jobqueue.slurm import SLURMCluster

    with SLURMCluster(
        cores=arguments.cores,
        processes=1,  # one worker a job: a task of ours uses all of its cores
        memory=arguments.memory,
        walltime=arguments.time,
        worker_extra_args=["--memory-limit", "0", "--preload", "bigsvm.cluster.worker_process"],
        job_extra_directives=DIRECTIVES,
        job_script_prologue=PROLOGUE,
        scheduler_options={"dashboard_address": ":0"},
    ) as cluster:
        fewest, most = arguments.jobs
        cluster.adapt(minimum_jobs=fewest, maximum_jobs=most)
        address = cluster.scheduler_address
        settings = ["--set", "cluster.kind=address", "--set", f"cluster.address={address}"]
        train = [sys.executable, "-m", "bigsvm.train", *of_the_training, *settings]
        return subprocess.call(train)


if __name__ == "__main__":
    sys.exit(main())
