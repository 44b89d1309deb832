"""One attacked training: started, waited for, and checked against the guarantees."""

import fcntl
import json
import os
import pty
import random
import re
import select
import signal
import subprocess
import sys
import termios
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bigsvm.core.errors import UserError
from bigsvm.files.checked_tensors import read_tensors
from scripts.reliability.clusters import Cluster, LocalWorkers
from scripts.reliability.fork_server import ForkedProcess, ForkServer

MOST_SECONDS = 500  # for a training of a few: longer is a hang
KILLED = -signal.SIGKILL

# The kinds of deviations.
OTHER_RESULT, LOST, TRACEBACK = "another result", "an iteration lost", "a traceback"
TORN, LEFT_OVER, WRONG_END, HUNG = "a torn file", "left over", "a wrong end", "a hang"
KINDS = (OTHER_RESULT, LOST, TRACEBACK, TORN, LEFT_OVER, WRONG_END, HUNG)


class Attempt:
    """One process of a training; its output is read, on request through a terminal of its own."""

    def __init__(
        self,
        arguments: list[str],
        folder: Path,
        fork_server: ForkServer | None,
        on_terminal: bool = False,
        **environment: str,
    ) -> None:
        # Not to a file: an attack limits the size of those.
        self._ear, mouth = pty.openpty() if on_terminal else os.pipe()

        def prepare() -> None:
            # A shell's background job would pass an ignored Ctrl-C on.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            if on_terminal:
                with suppress(OSError):  # it was closed already
                    fcntl.ioctl(1, termios.TIOCSCTTY, 0)

        self.process: ForkedProcess | subprocess.Popen[bytes]
        if fork_server:
            self.process = fork_server.start(
                arguments, mouth, mouth, folder, on_terminal, os.environ | environment
            )
        else:
            self.process = subprocess.Popen(
                [sys.executable, *arguments], stdin=subprocess.DEVNULL, stdout=mouth, stderr=mouth,
                cwd=folder, start_new_session=on_terminal, env=os.environ | environment,
                preexec_fn=prepare,
            )  # fmt: skip
        self.is_quick = fork_server is not None
        os.close(mouth)
        self.pid, self.poll = self.process.pid, self.process.poll
        self.send_signal = self.process.send_signal
        self._said = b""
        self._hung_up = threading.Event()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        with suppress(OSError):  # a terminal that no process holds open any more
            while not self._hung_up.is_set():
                if select.select([self._ear], [], [], 0.05)[0]:
                    said = os.read(self._ear, 2**16)
                    if not said:
                        break
                    self._said += said
        os.close(self._ear)

    def hang_up(self) -> None:
        """Close the terminal."""
        self._hung_up.set()
        self._listener.join()

    @property
    def hung_up(self) -> bool:
        return self._hung_up.is_set()

    @property
    def said(self) -> str:
        return self._said.decode(errors="replace")

    def wait(self) -> int | None:
        """The exit code; None if it hangs.

        Time in which all of this was stopped, or the machine asleep, does not count.
        """
        patience = float(MOST_SECONDS)
        while patience > 0:
            before = time.monotonic()
            try:
                return self.process.wait(timeout=1)
            except subprocess.TimeoutExpired:
                patience -= min(2.0, time.monotonic() - before)
        self.process.kill()
        self.process.wait()
        return None

    def is_silent(self) -> bool:
        """Whether all processes that could write, its own workers too, are gone."""
        for _ in range(30):
            self._listener.join(timeout=1)
            if not self._listener.is_alive():
                return True
        return False


@dataclass
class Trial:
    """One run, to be attacked.

    Attributes
    ----------
    arguments : list of str
        Arguments of Python that start the training, and resume it.
    run_dir, store, test, scratch : Path
        Its own run directory, data and test data; a folder for the tricks of this trial.
    iterations : int
        How many the undisturbed run took.
    checkpoint_every : int
        As in the config.
    cluster : Cluster
        Where it computes.
    fork_server : ForkServer
        Starts it quickly, where that makes no difference.
    chance : random.Random
    deviations : list of (kind, words)
        Violations of the guarantees.
    """

    arguments: list[str]
    run_dir: Path
    store: Path
    test: Path
    scratch: Path
    iterations: int
    checkpoint_every: int
    cluster: Cluster
    fork_server: ForkServer
    chance: random.Random
    deviations: list[tuple[str, str]] = field(default_factory=list)
    starts: int = 0
    resumes: int = 0

    def __post_init__(self) -> None:
        self.folder, self.temporary = self.scratch / "folder", self.scratch / "temporary"
        self.folder.mkdir()
        self.temporary.mkdir()
        self._before: dict[Attempt, tuple[int, int]] = {}  # what was saved, and which reports

    def start(self, on_terminal: bool = False, **environment: str) -> Attempt:
        """Start the training."""
        self.starts += 1
        saved = iteration_of([path for path in self.checkpoints() if is_whole(path)])
        reports = self._reports()
        own = {"TMPDIR": str(self.temporary), **environment}
        # It may start processes that are like itself, or need a variable at the very start.
        usual = isinstance(self.cluster, LocalWorkers) or environment or self.chance.random() < 0.2
        fork_server = None if usual else self.fork_server
        attempt = Attempt(self.arguments, self.folder, fork_server, on_terminal, **own)
        self._before[attempt] = saved, reports
        return attempt

    def end(self, attempt: Attempt, *codes: int) -> int:
        """Wait for the end of the training, and check how it ended."""
        code = attempt.wait()
        if code is None:
            self.deviates(HUNG, f"for {MOST_SECONDS} s, having said {attempt.said[-300:]!r}")
            return KILLED
        if not attempt.is_silent():
            self.deviates(LEFT_OVER, "a process")
        said = attempt.said
        errors = [line for line in said.splitlines() if line.startswith("error: ")]
        if "Traceback" in said:
            self.deviates(TRACEBACK, said.strip().splitlines()[-1])
        elif code not in codes:
            self.deviates(WRONG_END, f"exit code {code}, not one of {codes}: {said[-300:]!r}")
        elif code in (1, 2) and len(errors) != 1:
            self.deviates(WRONG_END, f"{len(errors)} lines of error at exit code {code}: {said!r}")
        saved, reports = self._before[attempt]
        self._check_nothing_lost(saved, attempt, code)
        self._check_nothing_torn()
        if self._reports() != reports:  # else it has not begun
            self._check_saved_in_time()
        return code

    def deviates(self, kind: str, words: str) -> None:
        """Record a violation of the guarantees."""
        self.deviations.append((kind, words))

    def _check_nothing_lost(self, saved: int, attempt: Attempt, code: int) -> None:
        # A run that is done may have ended within a subproblem, after what is saved to resume from.
        resumed = re.search(r"(resuming at iteration|already \w+ after) ([\d,]+)", attempt.said)
        if resumed:
            self.resumes += 1
            at = int(resumed[2].replace(",", "").strip())
            if at < saved or (at > saved and resumed[1].startswith("resuming")):
                self.deviates(LOST, f"it resumed at iteration {at}, with {saved} saved")
        elif code == 0 and saved >= 0 and not attempt.hung_up:  # what it said then was not heard
            self.deviates(LOST, f"it started over, with iteration {saved} saved")

    def _check_nothing_torn(self) -> None:
        """Check that models and summaries are usable once they exist, however the run ended."""
        models = [self.run_dir / "model.safetensors", *self.run_dir.glob("snapshots/model-*")]
        torn = [path for path in models if path.exists() and not is_whole(path)]
        summary = self.run_dir / "summary.json"
        try:
            content = json.loads(summary.read_text() if summary.exists() else "{}")
        except ValueError:
            content = {}
            torn.append(summary)
        for path in torn:
            self.deviates(TORN, path.name)
        ended = content.get("status", "interrupted") != "interrupted"
        if ended and not torn and iteration_of_model(models[0]) != content["iterations"]:
            self.deviates(TORN, "summary.json, whose model is missing")

    def _reports(self) -> int:
        """The inode of metrics.jsonl: a resumed run first writes a new one."""
        file = self.run_dir / "metrics.jsonl"
        return file.stat().st_ino if file.exists() else 0

    def _check_saved_in_time(self) -> None:
        """Check that what should be saved by now has been: everything, after an orderly exit.

        After a kill: what was reported before the last report, since saving follows a report.
        """
        reported = []
        if (self.run_dir / "metrics.jsonl").exists():
            for line in (self.run_dir / "metrics.jsonl").read_text().splitlines():
                with suppress(ValueError):  # torn by a kill
                    reported.append(json.loads(line)["iteration"])
        due = reported[-2] - self.checkpoint_every + 1 if len(reported) > 1 else -1
        with suppress(OSError, ValueError):
            summary = json.loads((self.run_dir / "summary.json").read_text())
            due = summary["iterations"] if summary["status"] == "interrupted" else due
        saved = iteration_of([path for path in self.checkpoints() if is_whole(path)])
        if saved < due:
            self.deviates(LOST, f"the newest checkpoint is of iteration {saved}, not {due}")

    def check_reports(self) -> None:
        """Check, after its end, that lines of metrics.jsonl are complete and none is repeated."""
        try:
            lines = (self.run_dir / "metrics.jsonl").read_text().splitlines()
            reported = [json.loads(line)["iteration"] for line in lines]
        except (OSError, ValueError):
            self.deviates(TORN, "metrics.jsonl")
            return
        if reported != sorted(set(reported)):
            self.deviates(OTHER_RESULT, f"metrics.jsonl: iterations {reported}")

    def check_nothing_left(self) -> None:
        """Check, after its end, that no temporary file is left."""
        left = [path for path in self.run_dir.rglob(".*")]
        left += list(self.folder.rglob("*"))
        # Dask leaves its empty folder there, with two empty locks.
        left += [path for path in self.temporary.rglob("*") if path.name not in DASK_LEAVES]
        for path in left:
            self.deviates(LEFT_OVER, str(path.relative_to(self.scratch.parent)))

    def checkpoints(self) -> list[Path]:
        """The checkpoints there are, the newest last."""
        return sorted((self.run_dir / "checkpoints").glob("checkpoint-*.safetensors"))

    def some_moment(self, attempt: Attempt) -> None:
        """Wait for part of the training: a time, or work that has been saved."""
        deadline = time.monotonic() + MOST_SECONDS
        if self.chance.random() < 0.3:
            most = 0.3 if attempt.is_quick else self.cluster.seconds_to_start
            deadline = time.monotonic() + self.chance.uniform(0, most)
            far_enough = self.iterations + 1
        else:
            far_enough = int(self.chance.uniform(0, 0.9) * self.iterations)
        while attempt.poll() is None and time.monotonic() < deadline:
            if iteration_of(self.checkpoints()) >= far_enough:
                time.sleep(self.chance.uniform(0, 0.02))
                return
            time.sleep(0.002)

    def watching_signals(self, attempt: Attempt) -> None:
        """Wait until the training has installed its signal handlers."""
        while attempt.poll() is None:
            status = Path(f"/proc/{attempt.pid}/status").read_text()
            caught = int(status.split("SigCgt:")[1].split()[0], 16)
            if caught >> (signal.SIGTERM - 1) & 1:
                return
            time.sleep(0.005)

    def killed(self) -> None:
        """Start, and kill -9 at a random moment."""
        attempt = self.start()
        self.some_moment(attempt)
        attempt.send_signal(signal.SIGKILL)
        self.end(attempt, 0, KILLED)


DASK_LEAVES = ("dask-scratch-space", "global.lock", "purge.lock")


def iteration_of(checkpoints: list[Path]) -> int:
    """The iteration of the newest; -1 where there is none."""
    return int(checkpoints[-1].stem.removeprefix("checkpoint-")) if checkpoints else -1


def iteration_of_model(path: Path) -> int:
    """That of a model; -1 where there is none."""
    return int(read_tensors(path)[1]["about"]["iteration"]) if path.exists() else -1


def is_whole(checkpoint: Path) -> bool:
    try:
        read_tensors(checkpoint)
    except (UserError, OSError):
        return False
    return True
