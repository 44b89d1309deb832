"""Try the job scripts on a real Slurm of one node, which is started for that and stopped again.

    apt-get install slurm-wlm munge
    python -m scripts.slurm.one_node

A training is submitted with a limit of a minute, which strikes twice: the job saves itself, goes
back into the queue and resumes. evaluate.sbatch follows it. In the end the models must be those of
a local run, byte for byte, every one of them evaluated, and the job's log free of errors. Where
dask-jobqueue is installed, its SLURMCluster and SLURMRunner are tried, too.

Needs root, and leaves the machine as it was: keys, ports, state and logs are its own. Where Slurm
is not installed, it says so and ends with 0. Takes some five minutes.
"""

import argparse
import csv
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from scripts import REPOSITORY, python_path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel")
STRIKES = 2  # of the time limit
MOST_SECONDS = 1800
SNAPSHOT_EVERY = 1000
# The node has more processors than the machine, so that the evaluation runs beside the training. A
# requeued job waits until its credentials have expired: usually two minutes.
SLURM_CONF = """
ClusterName=bigsvm
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=15
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 RealMemory=4000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
CONFIG = """
data: {{train: {store}/train, test: {store}/test}}
model: {{C: 10, kernel: {{name: rbf, sigma: 1}}}}
solver: {{schedule: exact, tolerance: 1.0e-6, max_iterations: {iterations}, threads: 1}}
run: {{snapshot_every: {every}}}
"""


@contextmanager
def one_node_slurm(folder: Path) -> Iterator[dict[str, str]]:
    """Start Slurm in `folder`; yields the environment for its commands."""
    folder.mkdir()
    folder.chmod(0o755)  # munge asks for it
    (folder / "key").touch(mode=0o600)
    (folder / "key").write_bytes(os.urandom(128))
    host = socket.gethostname().split(".")[0]
    config = SLURM_CONF.format(host=host, folder=folder, ports=free_ports(2))
    (folder / "slurm.conf").write_text(config)
    environment = os.environ | {
        "SLURM_CONF": str(folder / "slurm.conf"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": python_path(),
    }
    files = {"key-file": "key", "socket": "munge.socket", "pid-file": "munged.pid"}
    files |= {"log-file": "munged.log", "seed-file": "munged.seed"}
    munged = ["munged", "-F", *(f"--{name}={folder / file}" for name, file in files.items())]
    with ExitStack() as stack:
        for command in (munged, ["slurmctld", "-D"], ["slurmd", "-D"]):
            log = stack.enter_context((folder / f"{command[0]}.out").open("wb"))
            daemon = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            stack.callback(stop, daemon)
            if command is munged:
                wait_until((folder / "munge.socket").exists, "munged does not start")

        def is_up() -> bool:
            state = output_of(environment, "sinfo", "--noheader", "--format=%T", check=False)
            return state.strip() == "idle"

        wait_until(is_up, f"Slurm does not start: see the logs in {folder}")
        yield environment


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("", 0))) for _ in range(count)]
        return [opened.getsockname()[1] for opened in sockets]


def stop(daemon: "subprocess.Popen[bytes]") -> None:
    daemon.terminate()
    try:
        daemon.wait(timeout=20)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


def wait_until(condition: Any, otherwise: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"error: {otherwise}")
        time.sleep(0.5)


def output_of(environment: dict[str, str], *command: str, check: bool = True) -> str:
    """What a command of Slurm prints."""
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if check and done.returncode:
        sys.exit(f"error: {' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def job_fields(environment: dict[str, str], job: str) -> dict[str, str]:
    words = output_of(environment, "scontrol", "show", "job", "--oneliner", job).split()
    return dict(word.split("=", 1) for word in words if "=" in word)


def submit_and_wait(environment: dict[str, str], folder: Path, config: Path) -> dict[str, str]:
    """Both jobs, to their end; the states they ended in, by name."""

    def submit(name: str, options: list[str], *arguments: str) -> str:
        options += ["--cpus-per-task=1", f"--output={folder / name}.log", f"--chdir={folder}"]
        script = str(REPOSITORY / "scripts" / "slurm" / f"{name}.sbatch")
        return output_of(environment, "sbatch", "--parsable", *options, script, *arguments).strip()

    size = ["--nodes=1", "--ntasks-per-node=2", "--mem=2G"]
    limit = ["--time=1", "--signal=B:USR1@10"]
    train = submit("train", [*size, *limit], str(config), "--run-dir", "run")
    evaluate = submit("evaluate", ["--mem=1G", f"--dependency=after:{train}"], "run")
    lifted = False

    def ended() -> bool:
        nonlocal lifted
        state = job_fields(environment, train)
        if not lifted and int(state["Restarts"]) >= STRIKES:
            print(f"the limit has struck {STRIKES} times; it is an hour from now on", flush=True)
            output_of(environment, "scontrol", "update", f"JobId={train}", "TimeLimit=60")
            lifted = True
        return all(
            job_fields(environment, job)["JobState"] not in ("PENDING", "RUNNING", "COMPLETING")
            for job in (train, evaluate)
        )

    wait_until(ended, "the jobs do not end", MOST_SECONDS)
    if not lifted:
        sys.exit(f"error: it ended before the limit struck {STRIKES} times; see --iterations")
    return {
        "train": job_fields(environment, train)["JobState"],
        "evaluate": job_fields(environment, evaluate)["JobState"],
    }


def faults(folder: Path, states: dict[str, str]) -> list[str]:
    """What is not as it should be."""
    found = [f"{job} ended as {state}" for job, state in states.items() if state != "COMPLETED"]
    names = sorted(path.name for path in (folder / "alone" / "snapshots").iterdir())
    for name in ["model.safetensors", *(f"snapshots/{name}" for name in names)]:
        one, other = folder / "alone" / name, folder / "run" / name
        if not other.exists() or one.read_bytes() != other.read_bytes():
            found.append(f"{name}: not that of the local run")
    table = folder / "run" / "evaluation.csv"
    rows = list(csv.DictReader(table.open())) if table.exists() else []
    if len(rows) < len(names):
        found.append(f"evaluation.csv: {len(rows)} models, with {len(names)} snapshots")
    for line in (folder / "train.log").read_text().splitlines():
        requeued = line.endswith("DUE TO JOB REQUEUE ***")  # Slurm's own words for it
        if not requeued and any(word in line for word in ("error", "distributed", "warn")):
            found.append(f"in the job's log: {line}")
    return found


def faults_of_examples(environment: dict[str, str], folder: Path, config: Path) -> list[str]:
    """Train with the clusters of dask-jobqueue, up to the first snapshot."""
    examples = {
        "slurm_cluster": ["--cores=1", "--memory=1GiB", "--jobs", "2", "2"],
        "slurm_runner": [],
    }
    tasks = ["srun", "--ntasks=4", "--cpus-per-task=1", "--mem=3G"]
    found = []
    for name, options in examples.items():
        script = [sys.executable, "-m", f"scripts.slurm.{name}", *options]
        command = [*(tasks if name == "slurm_runner" else []), *script]
        command += [str(config), "--run-dir", name]
        command += ["--set", f"solver.max_iterations={SNAPSHOT_EVERY}"]
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
        print(f"---- {name}\n{done.stdout}{done.stderr}")
        model = folder / name / "model.safetensors"
        snapshot = folder / "alone" / "snapshots" / f"model-{SNAPSHOT_EVERY:08d}.safetensors"
        if "distributed" in done.stdout + done.stderr:
            found.append(f"{name}: Dask reports what the training should")
        if done.returncode or model.read_bytes() != snapshot.read_bytes():
            found.append(f"{name}: exit code {done.returncode}, or another model")
    return found


def main() -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--iterations", type=int, default=5000, metavar="N", help="default 5000")
    arguments = parser.parse_args()
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing or os.geteuid() != 0:
        why = f"{', '.join(missing)} missing (apt-get install slurm-wlm munge)"
        print(f"skipped: {why if missing else 'only root can start Slurm'}")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # and stop Slurm
    with tempfile.TemporaryDirectory(prefix="one-node-slurm-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        config, store = folder / "c.yaml", folder / "s.zarr"
        config.write_text(
            CONFIG.format(store=store, iterations=arguments.iterations, every=SNAPSHOT_EVERY)
        )
        size = ("--rows", "30000", "--features", "8", "--test-rows", "2000")
        with one_node_slurm(folder / "slurm") as environment:
            python = (sys.executable, "-m")
            output_of(environment, *python, "bigsvm.prepare", "synthetic", str(store), *size)
            alone = str(folder / "alone")
            output_of(environment, *python, "bigsvm.train", str(config), "--run-dir", alone)
            states = submit_and_wait(environment, folder, config)
            found = []
            if importlib.util.find_spec("dask_jobqueue"):
                found += faults_of_examples(environment, folder, config)
        for job in states:
            print(f"---- {job}.log\n{(folder / f'{job}.log').read_text()}")
        found += faults(folder, states)
    print(*found, sep="\n", end="\n" if found else "")
    print(f"Slurm: resumed {STRIKES} times, {len(found)} faults")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
