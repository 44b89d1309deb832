"""What is done to a training while it runs, or between two of its runs: one function an attack.

An attack starts the training, does its worst, and checks how that process ended. Afterwards the
same command must finish the run, which the campaign checks.
"""

import os
import random
import re
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from bigsvm.errors import UserError
from bigsvm.sealed import read_sealed

MOST_SECONDS = 120  # for a training of two: longer is a hang
KILLED, TERMINATED, INTERRUPTED = -signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT

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


@dataclass
class Trial:
    """One run, to be attacked.

    Attributes
    ----------
    command : list of str
        Starts the training, and goes on with it.
    run_dir, store, scratch : Path
        Its own run directory and data; a folder for the logs and tricks of this trial.
    iterations : int
        How many the undisturbed run took.
    chance : random.Random
    deviations : list of str
        All that was not as promised.
    """

    command: list[str]
    run_dir: Path
    store: Path
    scratch: Path
    iterations: int
    chance: random.Random
    deviations: list[str] = field(default_factory=list)
    starts: int = 0
    resumes: int = 0
    _whole: dict[int, int] = field(default_factory=dict)

    def start(self, **environment: str) -> "subprocess.Popen[bytes]":
        """Start the training; what it says goes to a log."""
        self.starts += 1
        self._whole[self.starts] = iteration_of([p for p in self.checkpoints() if is_whole(p)])
        with self._log().open("wb") as log:
            return subprocess.Popen(
                self.command, stdout=log, stderr=log, env=os.environ | environment,
                # A shell's background job would pass an ignored Ctrl-C on.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )  # fmt: skip

    def end(self, process: "subprocess.Popen[bytes]", *codes: int) -> int:
        """Wait for the end of the training, and check how it ended."""
        try:
            code = process.wait(timeout=MOST_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            self.deviations.append(f"it hung for {MOST_SECONDS} s")
            return KILLED
        said = self.said()
        errors = [line for line in said.splitlines() if line.startswith("error: ")]
        if "Traceback" in said:
            self.deviations.append(f"a traceback: {said.strip().splitlines()[-1]}")
        elif code not in codes:
            self.deviations.append(f"exit code {code}, not one of {codes}: {said[-300:]}")
        elif code in (1, 2) and len(errors) != 1:
            self.deviations.append(f"{len(errors)} lines of error at exit code {code}: {said}")
        self._check_nothing_lost(said, code)
        return code

    def _check_nothing_lost(self, said: str, code: int) -> None:
        saved = self._whole[self.starts]
        went_on = re.search(r"going on at iteration ([\d,]+)", said)
        if went_on:
            self.resumes += 1
            at = int(went_on[1].replace(",", "").strip())
            if at != saved:
                self.deviations.append(f"it went on at iteration {at}, with {saved} saved")
        elif code == 0 and saved >= 0:
            self.deviations.append(f"it began anew, with iteration {saved} saved")

    def said(self) -> str:
        """What the training last started has said."""
        return self._log().read_text(errors="replace")

    def checkpoints(self) -> list[Path]:
        """The checkpoints there are, the newest last."""
        return sorted((self.run_dir / "checkpoints").glob("checkpoint-*.safetensors"))

    def some_moment(self, process: "subprocess.Popen[bytes]") -> None:
        """Let some part of the training pass: a time, or work that has been saved."""
        deadline = time.monotonic() + MOST_SECONDS
        if self.chance.random() < 0.3:
            deadline = time.monotonic() + self.chance.uniform(0, 1.5)
            far_enough = self.iterations + 1
        else:
            far_enough = int(self.chance.uniform(0, 0.9) * self.iterations)
        while process.poll() is None and time.monotonic() < deadline:
            if iteration_of(self.checkpoints()) >= far_enough:
                time.sleep(self.chance.uniform(0, 0.02))
                return
            time.sleep(0.002)

    def watching_signals(self, process: "subprocess.Popen[bytes]") -> None:
        """Wait until the training has taken signals into its own hands."""
        while process.poll() is None:
            status = Path(f"/proc/{process.pid}/status").read_text()
            caught = int(status.split("SigCgt:")[1].split()[0], 16)
            if caught >> (signal.SIGTERM - 1) & 1:
                return
            time.sleep(0.005)

    def killed(self) -> None:
        """Start, and kill -9 at some moment."""
        process = self.start()
        self.some_moment(process)
        process.kill()
        self.end(process, 0, KILLED)

    def _log(self) -> Path:
        return self.scratch / f"log-{self.starts}.txt"


def iteration_of(checkpoints: list[Path]) -> int:
    """The iteration of the newest; -1 where there is none."""
    return int(checkpoints[-1].stem.removeprefix("checkpoint-")) if checkpoints else -1


def is_whole(checkpoint: Path) -> bool:
    try:
        read_sealed(checkpoint)
    except (UserError, OSError):
        return False
    return True


def kill(trial: Trial) -> None:
    trial.killed()


def terminate(trial: Trial) -> None:
    process = trial.start()
    trial.some_moment(process)
    process.send_signal(signal.SIGTERM)
    trial.end(process, 0, 128 + signal.SIGTERM, TERMINATED)


def interrupt_twice(trial: Trial) -> None:
    process = trial.start()
    trial.watching_signals(process)
    trial.some_moment(process)
    process.send_signal(signal.SIGINT)
    time.sleep(trial.chance.uniform(0, 0.02))
    process.send_signal(signal.SIGINT)
    trial.end(process, 0, 128 + signal.SIGINT, INTERRUPTED)


def stop_for_a_while(trial: Trial) -> None:
    process = trial.start()
    trial.some_moment(process)
    process.send_signal(signal.SIGSTOP)
    time.sleep(trial.chance.uniform(0, 0.5))
    process.send_signal(signal.SIGCONT)
    trial.end(process, 0)


def second_trainer(trial: Trial) -> None:
    process = trial.start()
    while process.poll() is None and not is_locked(trial.run_dir):
        time.sleep(0.002)
    process.send_signal(signal.SIGSTOP)
    if process.poll() is None:
        second = trial.start()
        trial.end(second, 2)
        if "another trainer is at work" not in trial.said():
            trial.deviations.append(f"a second trainer was not refused: {trial.said()}")
        trial.starts -= 1  # back to the log of the first
    process.send_signal(signal.SIGCONT)
    trial.end(process, 0)


def write_fails_half_way(trial: Trial) -> None:
    process = trial.start()
    trial.some_moment(process)
    limit = trial.chance.randrange(1, 6000)
    if process.poll() is None:
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (limit, limit))
    trial.end(process, 0, 1)


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
    """The data is other data when the training goes on: refused, until it is the right data."""
    trial.killed()
    whole = trial.scratch / "whole"
    copy(trial.store, whole)
    flip_a_bit(largest_file(trial.store), trial.chance)
    trial.end(trial.start(), 0, 2)  # 0: a bit of HDF5 that means nothing
    remove(trial.store)
    whole.rename(trial.store)


def data_changed_under_the_run(trial: Trial) -> None:
    process = trial.start()
    trial.some_moment(process)
    whole = trial.scratch / "whole"
    copy(trial.store, whole)
    flip_a_bit(largest_file(trial.store), trial.chance)
    trial.end(process, 0, 2)
    remove(trial.store)
    whole.rename(trial.store)


def disk_full(trial: Trial) -> None:
    process = trial.start()
    trial.some_moment(process)
    filler = trial.run_dir.parent / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass  # until an error says that the disk is full
    trial.end(process, 0, 1, 2)
    filler.unlink()


def directory_read_only(trial: Trial) -> None:
    process = trial.start()
    trial.some_moment(process)
    # Refused while a file there is open for writing: try again between two of them.
    while process.poll() is None and not remounted(trial.run_dir.parent, "ro"):
        time.sleep(0.001)
    trial.end(process, 0, 1, 2)
    remounted(trial.run_dir.parent, "rw")


Attack = Callable[[Trial], None]
ATTACKS: dict[str, Attack] = {
    "kill -9": kill,
    "SIGTERM": terminate,
    "SIGINT twice": interrupt_twice,
    "SIGSTOP for a while": stop_for_a_while,
    "second trainer": second_trainer,
    "write fails half-way": write_fails_half_way,
    "clock jumps back": clock_jumps_back,
    "checkpoint cut": checkpoint_cut,
    "checkpoint bit flipped": checkpoint_flipped,
    "newest checkpoint deleted": newest_checkpoint_deleted,
    "data changed between": data_changed_between,
    "data changed under the run": data_changed_under_the_run,
}
# These need a file system of their own.
ON_A_SMALL_DISK: dict[str, Attack] = {
    "disk full": disk_full,
    "directory read-only": directory_read_only,
}


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


def flip_a_bit(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def largest_file(path: Path) -> Path:
    files = [file for file in [path, *path.rglob("*")] if file.is_file()]
    return max(files, key=lambda file: file.stat().st_size)


def copy(source: Path, target: Path) -> None:
    (shutil.copytree if source.is_dir() else shutil.copy)(source, target)


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
