"""Where the attacked trainings compute: in their own process, local workers, a Dask cluster."""

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from scripts.reliability.fork_server import ForkedProcess, ForkServer

WORKERS = 2


class Cluster:
    """No cluster: the training computes in its own process. Base class of the others.

    Attributes
    ----------
    settings : dict
        The section `cluster` of the config.
    seconds_to_start : float
        In which a training is likely to have begun.
    """

    seconds_to_start = 1.5

    def __init__(self, folder: Path, fork_server: ForkServer) -> None:
        self._folder, self._fork_server = folder, fork_server
        self.settings: dict[str, Any] = {"kind": "none"}

    def workers(self, trainer: int) -> list[int]:
        """The processes that compute, and that may be killed."""
        return []

    def mend(self, killed: Sequence[int] = ()) -> None:
        """Start workers in place of those just killed."""

    def close(self) -> None:
        """Stop everything that was started here."""


class LocalWorkers(Cluster):
    """Workers that the training starts itself, and replaces where they die."""

    seconds_to_start = 6.0

    def __init__(self, folder: Path, fork_server: ForkServer) -> None:
        super().__init__(folder, fork_server)
        self.settings = {"kind": "local", "workers": WORKERS}

    def workers(self, trainer: int) -> list[int]:
        found = []
        with suppress(psutil.Error):
            for process in psutil.Process(trainer).children():
                with suppress(psutil.Error):
                    if any("spawn_main" in word for word in process.cmdline()):
                        found.append(process.pid)
        return found


class OutsideCluster(Cluster):
    """A scheduler and workers that are there before the training, and after it."""

    seconds_to_start = 4.0

    def __init__(self, folder: Path, fork_server: ForkServer) -> None:
        super().__init__(folder, fork_server)
        folder.mkdir()
        self._file = folder / "scheduler.json"
        self.settings = {"kind": "scheduler_file", "scheduler_file": str(self._file)}
        self._workers: list[ForkedProcess] = []
        self.scheduler = self._start_scheduler()
        self.mend()

    def workers(self, trainer: int) -> list[int]:
        return [process.pid for process in self._workers]

    def mend(self, killed: Sequence[int] = ()) -> None:
        for process in self._workers:
            if process.pid in killed:
                process.wait()  # on a busy machine even kill -9 takes its time
        if self.scheduler.poll() is not None:
            self._end(*self._workers)
            self.scheduler = self._start_scheduler()
        self._workers = [process for process in self._workers if process.poll() is None]
        options = ("--no-nanny", "--nthreads", "1", "--memory-limit", "0", "--host", "127.0.0.1")
        while len(self._workers) < WORKERS:
            self._workers.append(
                self._start("worker", "--scheduler-file", str(self._file), *options)
            )

    def close(self) -> None:
        self._end(*self._workers, self.scheduler)

    def _start_scheduler(self) -> ForkedProcess:
        self._file.unlink(missing_ok=True)
        place = ("--scheduler-file", str(self._file), "--host", "tcp://127.0.0.1", "--port", "0")
        scheduler = self._start("scheduler", *place)
        while not (self._file.exists() and self._file.read_text().endswith("}")):
            if scheduler.poll() is not None:
                raise RuntimeError(f"no scheduler: {(self._folder / 'log').read_text()[-2000:]}")
            time.sleep(0.02)
        return scheduler

    def _start(self, what: str, *arguments: str) -> ForkedProcess:
        words = ["-m", "dask", what, "--no-dashboard", *arguments]
        with (self._folder / "log").open("ab") as log:
            mouths = log.fileno(), log.fileno()
            return self._fork_server.start(
                words, *mouths, self._folder, False, os.environ | {"TMPDIR": str(self._folder)}
            )

    def _end(self, *processes: ForkedProcess) -> None:
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()


CLUSTERS: dict[str, type[Cluster]] = {
    "none": Cluster,
    "local": LocalWorkers,
    "outside": OutsideCluster,
}
