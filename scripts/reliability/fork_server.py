"""A server process that has loaded everything and forks into trainings, or other Python commands.

Start-up takes nearly all the time of a small training. A process forked from this server can be
killed, stopped and starved like any other, but starts at once, so that an hour has room for many
more of them.
"""

import argparse
import ctypes
import fcntl
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
from numba.np.ufunc import parallel

from scripts import python_path

MODULES = ["h5py", "zarr", "distributed", "bigsvm.backends.dask", "bigsvm.backends.local"]
MODULES += ["bigsvm.cluster.start", "bigsvm.config", "bigsvm.models.scoring"]
MODULES += ["bigsvm.preparation.data_sets", "bigsvm.solvers.solve", "bigsvm.training.build"]
MODULES += ["bigsvm.training.display", "bigsvm.terminal.progress"]
PR_SET_CHILD_SUBREAPER = 36


class ForkedProcess:
    """A process that the server has forked: the part of `Popen` that is needed here."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if ended else None
        return self.returncode

    def wait(self, timeout: float = float("inf")) -> int:
        """Wait until it has ended; return the exit code."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(0.005)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """kill -9."""
        self.send_signal(signal.SIGKILL)


def _as_from_a_terminal() -> None:
    """Restore default signal handling, also where this was started with `&` or nohup."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


class ForkServer:
    """Starts trainings by forking; `close` ends it, not them.

    `environment` is that of its own process: what counts when libraries are loaded.
    """

    def __init__(self, **environment: str) -> None:
        # A process forked there becomes a child of this one, which can then wait for it.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._lock = threading.Lock()
        # GNU's OpenMP, the default, does not survive a fork.
        self._environment = {"NUMBA_THREADING_LAYER": "workqueue", "PYTHONPATH": python_path()}
        self._environment |= environment
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "scripts.reliability.fork_server", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=os.environ | self._environment,
            preexec_fn=_as_from_a_terminal,
        )
        theirs.close()

    def start(
        self,
        arguments: list[str],
        out: int,
        err: int,
        folder: Path,
        on_terminal: bool,
        environment: dict[str, str],
    ) -> ForkedProcess:
        """Start Python with these arguments, which writes to these files."""
        request = [arguments, str(folder), on_terminal, environment | self._environment]
        with self._lock:
            socket.send_fds(self._ours, [json.dumps(request).encode()], [out, err])
            return ForkedProcess(int(self._ours.recv(100)))

    def close(self) -> None:
        """Stop the server."""
        self._ours.close()
        self._process.wait()


def serve(asking: socket.socket) -> None:
    """Answer every request with the process id of a new process, until the socket is closed."""
    load_everything()
    while True:
        request, descriptors, _, _ = socket.recv_fds(asking, 2**16, 2)
        if not request:
            return
        arguments, folder, on_terminal, environment = json.loads(request)
        reader, writer = os.pipe()
        between = os.fork()
        if between == 0:
            child = os.fork()
            if child:  # its parent exits at once, so that the subreaper adopts it
                os.write(writer, str(child).encode())
                os._exit(0)
            for descriptor in (reader, writer, asking.detach()):
                os.close(descriptor)
            become(arguments, descriptors, folder, on_terminal, environment)
        os.waitpid(between, 0)
        asking.send(os.read(reader, 100))
        for descriptor in (reader, writer, *descriptors):
            os.close(descriptor)


def become(
    arguments: list[str],
    mouths: list[int],
    folder: str,
    on_terminal: bool,
    environment: dict[str, str],
) -> None:
    """Become `python ARGUMENTS`; does not return."""
    if on_terminal:
        os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    given = [nothing, *mouths]
    for target, source in enumerate(given):
        os.dup2(source, target)
    for descriptor in given:
        os.close(descriptor)
    if on_terminal:
        with suppress(OSError):  # it was closed already
            fcntl.ioctl(1, termios.TIOCSCTTY, 0)
    sys.stdout, sys.stderr = (os.fdopen(n, "w", buffering=1, closefd=False) for n in (1, 2))
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    # A semaphore that all processes forked here would share: killed while it is held, one of them
    # would stop all others for ever. None: numba makes another.
    parallel._backend_init_process_lock = None
    how, what, *rest = arguments
    sys.argv = [what, *rest]
    if how == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(compile(what, "-c", "exec"), {"__name__": "__main__"})
    sys.exit()


def load_everything() -> None:
    """Import what trainings import, and load what most have compiled: by very small ones."""
    for name in MODULES:
        importlib.import_module(name)
    from bigsvm.backends.in_memory import InMemoryBackend
    from bigsvm.core.stop_rule import StopRule
    from bigsvm.kernels import Kernel, warm_up
    from bigsvm.solvers.column_cache import space_for_columns
    from bigsvm.solvers.joint import JointProblem
    from bigsvm.solvers.problem import Problem
    from bigsvm.solvers.schedule import BlockSchedule, ExactSchedule
    from bigsvm.solvers.solve import Monitor, Task, solve

    generator = np.random.default_rng(0)
    rows = generator.normal(size=(60, 3)).astype(np.float32)
    signs = np.where(rows[:, 0] + generator.normal(size=60) > 0, 1, -1).astype(np.int8)
    signs.setflags(write=False)  # as those of a store are: compiled code tells them apart
    kernel = Kernel("rbf", 0.5)
    warm_up(kernel)
    backend = InMemoryBackend(rows, kernel)
    problem = JointProblem([Problem(backend, signs, 10.0, "mfw", StopRule(absolute=1e-3))])
    exact = ExactSchedule(problem, space_for_columns(2**20, 60))
    for schedule in (exact, BlockSchedule(problem, kernel, 2**20, 16)):
        solve(Task(problem, schedule, problem.start(0)), Monitor())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Started by the class ForkServer, not by hand.")
    parser.add_argument("socket", type=int, help="the descriptor of the socket for requests")
    with socket.socket(fileno=parser.parse_args().socket) as asking:
        serve(asking)
