"""The faults that are injected into a training or between two of its starts: a function for each.

An attack starts the training, disturbs it, and checks how that process ended. The caller then
checks that the same command finishes the run.
"""

import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import bigsvm
from scripts.reliability.clusters import OutsideCluster
from scripts.reliability.damage import changed_data, flip_a_bit, lost_chunk, renamed_classes
from scripts.reliability.trial import KILLED, WRONG_END, Attempt, Trial

TERMINATED, INTERRUPTED, HUNG_UP = -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP

JUMPING_CLOCK = """
import random, time
real, back = time.time, [0.0]
def jumping():
    if random.random() < 0.2:
        back[0] += random.uniform(0, 5000)
    return real() - back[0]
time.time = jumping
time.time_ns = lambda: int(1e9 * jumping())
"""


def kill(trial: Trial) -> None:
    for _ in range(trial.chance.choice([1, 1, 2, 4])):
        trial.killed()


def kill_as_a_file_appears(trial: Trial) -> None:
    """Between two files that belong together, or in one that has its name too soon."""
    attempt = trial.start()
    place = trial.chance.choice(["", "", "snapshots", "checkpoints"])
    names = names_in(trial.run_dir / place)
    for _ in range(trial.chance.choice([1, 2, 3, 4, 5])):
        before = names
        while attempt.poll() is None and not (names := names_in(trial.run_dir / place)) - before:
            time.sleep(0.0002)
    attempt.send_signal(signal.SIGKILL)
    trial.end(attempt, 0, KILLED)


def terminate(trial: Trial) -> None:
    attempt = trial.start()
    trial.some_moment(attempt)
    attempt.send_signal(signal.SIGTERM)
    trial.end(attempt, 0, 128 + signal.SIGTERM, TERMINATED)


def interrupt_twice(trial: Trial) -> None:
    attempt = trial.start()
    trial.watching_signals(attempt)
    trial.some_moment(attempt)
    attempt.send_signal(signal.SIGINT)
    time.sleep(trial.chance.uniform(0, 0.02))
    attempt.send_signal(signal.SIGINT)
    trial.end(attempt, 0, 128 + signal.SIGINT, INTERRUPTED)


def terminal_closed(trial: Trial) -> None:
    attempt = trial.start(on_terminal=True)
    trial.some_moment(attempt)
    attempt.hang_up()
    trial.end(attempt, 0, 128 + signal.SIGHUP, HUNG_UP)


def stop_for_a_while(trial: Trial) -> None:
    attempt = trial.start()
    trial.some_moment(attempt)
    attempt.send_signal(signal.SIGSTOP)
    time.sleep(trial.chance.uniform(0, 0.5))
    attempt.send_signal(signal.SIGCONT)
    trial.end(attempt, 0)


def second_trainer(trial: Trial) -> None:
    was_done = (trial.run_dir / "model.safetensors").exists()  # then it is locked for moments only
    attempt = trial.start()
    locked = False
    while attempt.poll() is None and not (locked := is_locked(trial.run_dir)):
        time.sleep(0.002)
    if not locked and not was_done:
        trial.deviates(WRONG_END, "its run directory was never seen to be locked")
    attempt.send_signal(signal.SIGSTOP)
    if attempt.poll() is None:
        second = trial.start()
        trial.end(second, 2)
        if "another trainer uses" not in second.said:
            trial.deviates(WRONG_END, f"a second trainer was not refused: {second.said!r}")
    attempt.send_signal(signal.SIGCONT)
    trial.end(attempt, 0)


def write_fails_half_way(trial: Trial) -> None:
    attempt = trial.start()
    trial.some_moment(attempt)
    limit = trial.chance.randrange(1, 6000)
    if attempt.poll() is None:
        resource.prlimit(attempt.pid, resource.RLIMIT_FSIZE, (limit, limit))
    trial.end(attempt, 0, 1)


def clock_jumps_back(trial: Trial) -> None:
    (trial.scratch / "sitecustomize.py").write_text(JUMPING_CLOCK)
    path = os.pathsep.join([str(trial.scratch), os.environ.get("PYTHONPATH", "")])
    trial.end(trial.start(PYTHONPATH=path), 0)


def checkpoint_cut(trial: Trial) -> None:
    trial.killed()
    for path in trial.checkpoints()[-1:]:
        os.truncate(path, trial.chance.randrange(path.stat().st_size))


def checkpoint_flipped(trial: Trial) -> None:
    trial.killed()
    for path in trial.checkpoints()[-1:]:
        flip_a_bit(path, trial.chance)


def newest_checkpoint_deleted(trial: Trial) -> None:
    trial.killed()
    for path in trial.checkpoints()[-1:]:
        path.unlink()


def data_changed_between(trial: Trial) -> None:
    """Resuming with other data is refused, until the right data is back."""
    trial.killed()
    with changed_data(trial.store, trial.scratch, trial.chance):
        trial.end(trial.start(), 0, 2)  # 0: a bit of HDF5 that means nothing


def data_changed_under_the_run(trial: Trial) -> None:
    attempt = trial.start()
    trial.some_moment(attempt)
    with changed_data(trial.store, trial.scratch, trial.chance):
        trial.end(attempt, 0, 2)  # 0: it had all it needed


def chunk_lost(trial: Trial) -> None:
    """A chunk is missing when the training resumes: refused, until it is back."""
    trial.killed()
    with lost_chunk(trial.store, trial.chance):
        trial.end(trial.start(), 2)


def class_renamed(trial: Trial) -> None:
    """The labels have other names when the training resumes: refused, or the model would mix them.

    A run that was killed before it had begun takes them as they are, and begins again afterwards.
    """
    trial.killed()
    had_begun = bool(trial.checkpoints()) or (trial.run_dir / "model.safetensors").exists()
    with renamed_classes(trial.store, trial.scratch):
        if had_begun:
            trial.end(trial.start(), 2)


def test_set_damaged_at_the_end(trial: Trial) -> None:
    """The test set is damaged during the training: the model is written, the score later."""
    attempt = trial.start()
    trial.some_moment(attempt)
    with lost_chunk(trial.test, trial.chance):
        trial.end(attempt, 0, 2)


def leftovers_planted(trial: Trial) -> None:
    """What a killed trainer, or an adversary, has left under the names of temporary files."""
    trial.killed()
    victim = trial.scratch / "victim"
    victim.write_text("untouched")
    planted = []
    for folder in (trial.run_dir, trial.run_dir / "checkpoints", trial.run_dir / "snapshots"):
        if folder.is_dir():
            process = dead_process()
            (folder / f".model.safetensors.{process}.tmp").write_bytes(b"torn")
            (folder / f".config.yaml.{process}.{'0f' * 8}.tmp").touch()
            planted.append(folder / f".summary.json.{process}.tmp")
            planted[-1].symlink_to(victim)
    trial.end(trial.start(), 0)
    for link in planted:  # not a temporary of ours, so that it is left alone
        if link.is_symlink():
            link.unlink()
        else:
            trial.deviates(WRONG_END, f"{link.name}, which is not ours, was removed")
    if victim.read_text() != "untouched":
        trial.deviates(WRONG_END, "a planted symlink was followed")


def cache_not_writable(trial: Trial) -> None:
    """Compiled code cannot be kept beside the package, nor in a home that cannot be."""
    installed = trial.scratch / "installed"
    shutil.copytree(
        Path(bigsvm.__file__).parent,
        installed / "bigsvm",
        ignore=shutil.ignore_patterns("__pycache__"),
        dirs_exist_ok=True,  # the attack may be drawn twice for one run
    )
    for package in [installed / "bigsvm", *(installed / "bigsvm").rglob("*")]:
        if package.is_dir():  # unlike permissions, this holds for root, too
            (package / "__pycache__").touch()
    nowhere = {"HOME": f"{os.devnull}/home", "XDG_CACHE_HOME": f"{os.devnull}/cache"}
    path = os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])
    attempt = trial.start(PYTHONPATH=path, PYTHONDONTWRITEBYTECODE="1", **nowhere)
    trial.end(attempt, 0)
    if "NUMBA_CACHE_DIR" not in attempt.said:
        trial.deviates(WRONG_END, "it was not told where compiled code is kept")
    shutil.rmtree(trial.temporary / f"bigsvm-numba-{os.getuid()}", ignore_errors=True)


def dead_process() -> int:
    """The number of a process that has ended."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    return ended.pid


def disk_full(trial: Trial) -> None:
    attempt = trial.start()
    trial.some_moment(attempt)
    filler = trial.run_dir.parent / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass  # until an error says that the disk is full
    trial.end(attempt, 0, 1, 2)
    filler.unlink()


def directory_read_only(trial: Trial) -> None:
    attempt = trial.start()
    trial.some_moment(attempt)
    # Refused while a file there is open for writing: try again between two of them.
    while attempt.poll() is None and not remounted(trial.run_dir.parent, "ro"):
        time.sleep(0.001)
    trial.end(attempt, 0, 1, 2)
    remounted(trial.run_dir.parent, "rw")


def one_worker_killed(trial: Trial) -> None:
    attempt = trial.start()
    trial.some_moment(attempt)
    killed = signal_some(trial, attempt, signal.SIGKILL, 1)
    trial.cluster.mend(killed)
    trial.end(attempt, 0)


def all_workers_killed(trial: Trial) -> None:
    attempt = trial.start()
    trial.some_moment(attempt)
    killed = signal_some(trial, attempt, signal.SIGKILL)
    time.sleep(trial.chance.uniform(0, 1))
    trial.cluster.mend(killed)
    trial.end(attempt, 0)


def workers_stopped_for_a_while(trial: Trial) -> None:
    attempt = trial.start()
    trial.some_moment(attempt)
    stopped = signal_some(trial, attempt, signal.SIGSTOP)
    time.sleep(trial.chance.uniform(0, 2))
    for process in stopped:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)
    trial.end(attempt, 0)


def scheduler_killed(trial: Trial) -> None:
    assert isinstance(trial.cluster, OutsideCluster)
    attempt = trial.start()
    trial.some_moment(attempt)
    trial.cluster.scheduler.kill()
    trial.cluster.scheduler.wait()
    trial.end(attempt, 0, 1, 2)  # 2: it was gone before the training had ever seen it
    trial.cluster.mend()


def signal_some(trial: Trial, attempt: Attempt, number: int, most: int = 99) -> list[int]:
    """Send a signal to workers; those that were there to get it."""
    workers = trial.cluster.workers(attempt.pid)
    trial.chance.shuffle(workers)
    for process in workers[:most]:
        with suppress(ProcessLookupError):
            os.kill(process, number)
    return workers[:most]


Attack = Callable[[Trial], None]
ATTACKS: dict[str, Attack] = {
    "kill -9": kill,
    "kill -9 as a file appears": kill_as_a_file_appears,
    "SIGTERM": terminate,
    "SIGINT twice": interrupt_twice,
    "terminal closed": terminal_closed,
    "SIGSTOP for a while": stop_for_a_while,
    "second trainer": second_trainer,
    "write fails half-way": write_fails_half_way,
    "clock jumps back": clock_jumps_back,
    "checkpoint cut": checkpoint_cut,
    "checkpoint bit flipped": checkpoint_flipped,
    "newest checkpoint deleted": newest_checkpoint_deleted,
    "data changed between": data_changed_between,
    "data changed under the run": data_changed_under_the_run,
    "chunk lost": chunk_lost,
    "class renamed": class_renamed,
    "test set damaged at the end": test_set_damaged_at_the_end,
    "leftovers planted": leftovers_planted,
    "cache not writable": cache_not_writable,
}
ON_WORKERS: dict[str, Attack] = {
    "a worker killed": one_worker_killed,
    "all workers killed": all_workers_killed,
    "workers stopped for a while": workers_stopped_for_a_while,
}
ON_A_SCHEDULER: dict[str, Attack] = {"scheduler killed": scheduler_killed}
# These need a file system of their own.
ON_A_SMALL_DISK: dict[str, Attack] = {
    "disk full": disk_full,
    "directory read-only": directory_read_only,
}


def attacks_on(cluster: str) -> dict[str, Attack]:
    """The attacks that make sense on a training, by the kind of its cluster."""
    workers = {} if cluster == "none" else ON_WORKERS
    scheduler = ON_A_SCHEDULER if cluster == "outside" else {}
    return ATTACKS | ON_A_SMALL_DISK | workers | scheduler


@contextmanager
def small_disk(folder: Path) -> Iterator[Path | None]:
    """Mount a file system of a few megabytes on `folder`; None where that is not allowed."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def names_in(folder: Path) -> set[str]:
    """The files under their final names."""
    with suppress(FileNotFoundError):
        return {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    return set()


def is_locked(folder: Path) -> bool:
    """Whether a process holds a lock on `folder`; taking it to find out would get in its way."""
    if not folder.exists():
        return False
    inode = folder.stat().st_ino
    lines = Path("/proc/locks").read_text().splitlines()
    return any(f":{inode} " in line and "->" not in line for line in lines)


def remounted(folder: Path, how: str) -> bool:
    command = ["mount", "-o", f"remount,{how}", str(folder)]
    return subprocess.run(command, capture_output=True).returncode == 0
