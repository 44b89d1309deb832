"""A parallel map that computes nothing twice: each result is a file, written when it is done."""

import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from threading import Thread
from typing import Any

import psutil

from bigsvm.core.errors import UserError
from bigsvm.files.atomic import atomic_write, remove_stale_temporaries

Arguments = dict[str, Any]
Results = dict[str, Any]


class TaskCache:
    """Where results are kept, and the processes that make them; to be used in a `with`.

    Parameters
    ----------
    folder : Path
        Results lie in ``folder/task/unit.json``.
    processes : int
    quick : bool
        Small problems only, to see that all works.
    repetitions : int
        How many of the ten partitions are done.
    miniboone : Path or None
        The whole UCI file, where it is present.
    """

    def __init__(
        self,
        folder: Path,
        processes: int = 2,
        quick: bool = False,
        repetitions: int = 10,
        miniboone: Path | None = None,
    ) -> None:
        self.folder = folder
        self.quick = quick
        self.repetitions = min(2, repetitions) if quick else repetitions
        self.miniboone = miniboone
        # A unit has one core: processes of several threads would be in each other's way.
        os.environ["NUMBA_NUM_THREADS"] = "1"
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(processes, context, _begin_work, (processes,))

    def __enter__(self) -> "TaskCache":
        return self

    def __exit__(self, kind: type | None, *details: Any) -> None:
        """Leave at once after a failure: what is finished is kept, the rest is done again."""
        workers = list((self._pool._processes or {}).values())
        self._pool.shutdown(wait=kind is None, cancel_futures=True)
        if kind is not None:
            for worker in workers:
                worker.kill()

    def map(
        self,
        task: str,
        function: Callable[..., Any],
        units: Mapping[str, Arguments],
        cost: Callable[[Arguments], float] = lambda arguments: 1.0,
    ) -> Results:
        """``function(**arguments)`` of every unit, by its name.

        A unit that was finished before, with the same arguments, is read. The others are computed,
        the dearest first; `cost` says how dear they are relative to each other, for the order and
        for the estimate of the time left.
        """
        folder = self.folder / task
        folder.mkdir(parents=True, exist_ok=True)
        remove_stale_temporaries(folder)
        results = {name: _finished(folder, name, units[name]) for name in units}
        missing = [name for name in units if results[name] is None]
        missing.sort(key=lambda name: -cost(units[name]))
        progress = Progress(task, len(units), {name: cost(units[name]) for name in missing})
        running = {
            self._pool.submit(_compute, folder, name, function, units[name]): name
            for name in missing
        }
        _collect(running, results, progress)
        progress.end()
        return {name: result["result"] for name, result in results.items()}

    def seconds(self) -> dict[str, float]:
        """Processor time of all results kept, by task."""
        return {
            task.name: sum(json.loads(unit.read_text())["seconds"] for unit in units)
            for task in sorted(self.folder.iterdir())
            if (units := list(task.glob("*.json")))
        }


def _finished(folder: Path, name: str, arguments: Arguments) -> Results | None:
    path = folder / f"{name}.json"
    try:
        kept = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError as damage:
        raise UserError(f"{path}: is damaged ({damage}); remove it") from damage
    return kept if kept["arguments"] == _as_json(arguments) else None


def _as_json(arguments: Arguments) -> Any:
    return json.loads(json.dumps(arguments))


def _compute(folder: Path, name: str, function: Callable[..., Any], arguments: Arguments) -> Any:
    began = time.process_time()
    kept = {"arguments": _as_json(arguments), "result": function(**arguments)}
    kept["seconds"] = round(time.process_time() - began, 2)
    with atomic_write(folder / f"{name}.json") as temporary:
        temporary.write_text(json.dumps(kept))
    return kept


_processes = 1


def memory_share() -> int:
    """Bytes that a process may take, with as much left over for everybody else."""
    return psutil.virtual_memory().total // (_processes + 1)


def _begin_work(processes: int) -> None:
    """Of a worker: Ctrl-C is for the parent to judge, and without a parent there is no work."""
    global _processes
    _processes = processes
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _collect(running: dict[Future, str], results: Results, progress: "Progress") -> None:
    left = set(running)
    while left:
        done, left = wait(left, timeout=1, return_when=FIRST_COMPLETED)
        for future in done:
            try:
                results[running[future]] = future.result()
            except BrokenProcessPool as killed:
                raise UserError(
                    f"{progress.task}: a process was killed, perhaps for want of memory; "
                    "resume with the same command and --processes 1"
                ) from killed
            progress.finished(running[future])
        progress.show()


class Progress:
    """A line on stderr: units done, and how long the others will take."""

    def __init__(self, task: str, units: int, missing: dict[str, float]) -> None:
        self.task, self._units, self._missing = task, units, dict(missing)
        self._began = time.monotonic()
        self._all, self._done = sum(missing.values()), 0.0
        self._shown = 0.0

    def finished(self, name: str) -> None:
        self._done += self._missing.pop(name)

    def show(self) -> None:
        """At most every second on a terminal, every half minute into a file."""
        now, terminal = time.monotonic(), sys.stderr.isatty()
        if now - self._shown < (1 if terminal else 30):
            return
        self._shown = now
        elapsed = now - self._began
        guess = elapsed * (self._all / self._done - 1) if self._done else None
        line = (
            f"{self.task}: {self._units - len(self._missing)} of {self._units} units, "
            f"{_minutes(elapsed)}"
            + (f", about {_minutes(guess)} left" if guess is not None else "")
        )
        print(f"\r\033[K{line}" if terminal else line, end="" if terminal else "\n",
              file=sys.stderr, flush=True)  # fmt: skip

    def end(self) -> None:
        line = f"{self.task}: {self._units} units, {_minutes(time.monotonic() - self._began)}"
        start = "\r\033[K" if sys.stderr.isatty() else ""
        print(start + line, file=sys.stderr, flush=True)


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
