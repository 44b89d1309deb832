"""Real Dask schedulers and workers, each a process of its own, to be disturbed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from distributed import Client

from tests.support.trainings import HANGS, REPOSITORY, environment


def until(condition: Callable[[], Any]) -> Any:
    """Wait for something to be true, and return it."""
    deadline = time.monotonic() + HANGS
    while not (value := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return value


def another_version(folder: Path) -> None:
    """A copy of bigsvm that calls itself version 9.x."""
    shutil.copytree(REPOSITORY / "bigsvm", folder / "bigsvm")
    version = folder / "bigsvm" / "core" / "version.py"
    version.write_text(version.read_text().replace('__version__ = "', '__version__ = "9.'))


class Processes:
    """A scheduler, and workers by their names."""

    def __init__(self, folder: Path, *options: str, security: Any = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.file = folder, folder / "scheduler.json"
        self._options, self._security = options, security
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self._client: Client | None = None
        scheme = "tls" if options else "tcp"
        self.scheduler = self._start(
            "scheduler",
            *("--scheduler-file", str(self.file), "--host", f"{scheme}://127.0.0.1", "--port", "0"),
        )
        until(lambda: self.file.exists() and self.file.read_text().endswith("}"))
        self.address = json.loads(self.file.read_text())["address"]

    def _start(
        self, what: str, *arguments: str, cwd: Path | None = None, path: Path | None = None
    ) -> "subprocess.Popen[bytes]":
        env = environment()
        if path is not None:
            env["PYTHONPATH"] = f"{path}:{env['PYTHONPATH']}"
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "dask", what, "--no-dashboard", *arguments, *self._options],
                stdout=log,
                stderr=log,
                env=env,
                cwd=cwd or self.folder,
            )

    def start_worker(self, name: str, cwd: Path | None = None, path: Path | None = None) -> None:
        """Start a worker, in another folder or with another path to import from if asked."""
        options = ("--no-nanny", "--nthreads", "1", "--memory-limit", "0", "--host", "127.0.0.1")
        self.workers[name] = self._start(
            "worker", self.address, "--name", name, *options, cwd=cwd, path=path
        )

    @property
    def client(self) -> Client:
        if self._client is None:
            self._client = Client(self.address, security=self._security, set_as_default=False)
        return self._client

    def addresses(self) -> dict[str, str]:
        """Where the workers are, by their names."""
        workers = self.client.scheduler_info(n_workers=-1)["workers"]
        return {str(about["name"]): address for address, about in workers.items()}

    def stop(self, name: str) -> None:
        """Stop a worker until it is sent SIGCONT."""
        self.workers[name].send_signal(signal.SIGSTOP)

    def freeze(self, name: str) -> None:
        """Stop a worker, and wait until it has something to do: it is in the middle of a pass."""
        address = until(lambda: self.addresses().get(name))

        def caught() -> bool:
            self.stop(name)
            for _ in range(50):
                if self.client.processing().get(address):
                    return True
                time.sleep(0.01)
            self.workers[name].send_signal(signal.SIGCONT)  # it had just answered: try again
            return False

        until(caught)

    def kill(self, process: "subprocess.Popen[bytes]") -> None:
        """kill -9."""
        process.send_signal(signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        if self._client is not None:
            self._client.close(timeout=2)
        for process in (*self.workers.values(), self.scheduler):
            if process.poll() is None:
                os.kill(process.pid, signal.SIGCONT)
                self.kill(process)
