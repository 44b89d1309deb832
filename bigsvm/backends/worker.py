"""What runs on a Dask worker: the kernels, on a stretch of the rows that the worker reads itself.

A worker holds no state of the training. All it keeps between tasks is the stretch it was last asked
for, as much of it as fits in memory.
"""

import hashlib
import signal
import threading
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

import bigsvm
from bigsvm.backends.local import LocalBackend
from bigsvm.errors import UserError
from bigsvm.kernels import Kernel, warm_up
from bigsvm.memory import plan_memory
from bigsvm.store import Dataset, open_dataset
from bigsvm.threads import available_threads


class UnfitWorker(Exception):
    """A worker that would not compute what the others compute; the message says why."""


@dataclass(frozen=True)
class Stretch:
    """Rows `start` to `stop` of a data set, and how they are to be served.

    Attributes
    ----------
    store : str or dict
        The data set, as `open_dataset` takes it.
    seen : dict
        What the driver saw of that store and of its own software; see `look`.
    kernel : Kernel
    start, stop : int
    memory_limit, threads : int
        Of the worker's process.
    """

    store: Any
    seen: dict[str, Any]
    kernel: Kernel
    start: int
    stop: int
    memory_limit: int
    threads: int


class _Part(Dataset):
    """Some rows of a data set, as if they were all of it."""

    def __init__(self, whole: Dataset, start: int, stop: int) -> None:
        self._whole, self._start = whole, start
        self.n = stop - start
        self.chunk_rows = min(whole.chunk_rows, self.n)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)  # all that is the same for some rows as for all

    def read(self, start: int, stop: int, *space: Any) -> np.ndarray:
        return self._whole.read(self._start + start, self._start + stop, *space)

    def gather(self, indices: np.ndarray) -> np.ndarray:
        return self._whole.gather(self._start + np.asarray(indices))

    def close(self) -> None:
        self._whole.close()


# One task at a time: it has all of the worker's threads, and numba's simplest threading layer
# (workqueue) does not bear two callers.
_one_at_a_time = threading.Lock()
_kept: tuple[Stretch, Dataset, LocalBackend] | None = None


def gather(stretch: Stretch, indices: np.ndarray) -> tuple[float, np.ndarray]:
    """Seconds taken, and the patterns `indices` of the stretch."""
    with _one_at_a_time:
        begin = time.monotonic()
        rows = _served(stretch).gather(indices - stretch.start)
        return time.monotonic() - begin, rows


def columns(stretch: Stretch, rows: np.ndarray) -> tuple[float, np.ndarray]:
    """Seconds taken, and the kernel columns of `rows`, as far as the stretch goes."""
    with _one_at_a_time:
        begin = time.monotonic()
        part = np.empty((len(rows), stretch.stop - stretch.start), np.float32)
        _served(stretch).columns(rows, part, np.arange(len(rows)))
        return time.monotonic() - begin, part


def matvec(stretch: Stretch, rows: np.ndarray, coef: np.ndarray) -> tuple[float, np.ndarray]:
    """Seconds taken, and the kernel products of the patterns in the stretch."""
    with _one_at_a_time:
        begin = time.monotonic()
        sums = _served(stretch).matvec(rows, coef)
        return time.monotonic() - begin, sums


def look(store: Any) -> dict[str, Any]:
    """What must be the same on every worker: the software, and the store as it is seen there."""
    import numba

    seen = {"bigsvm": bigsvm.__version__, "numpy": np.__version__, "numba": numba.__version__}
    try:
        with open_dataset(store, with_labels=False) as dataset:
            ends = [dataset.read(i, i + 1).tobytes() for i in (0, dataset.n - 1)]
            about = f"{dataset.n} {dataset.d} {dataset.recorded_fingerprint}".encode()
            seen["store"] = hashlib.sha256(b"\n".join([about, *ends])).hexdigest()
    except (UserError, OSError) as problem:
        seen["problem"] = str(problem)
    return seen


def difference(seen: dict[str, Any], expected: dict[str, Any], store: Any) -> str | None:
    """In what a worker differs from the driver, in words; None where it is fit."""
    for name in ("bigsvm", "numpy", "numba"):
        if seen.get(name) != expected[name]:
            return (
                f"has {name} {seen.get(name)}, and the trainer has {expected[name]}; "
                "install the same version there"
            )
    path = store["path"] if isinstance(store, dict) else store
    if "problem" in seen:
        return f"cannot see the store ({seen['problem']}); put {path} where all workers see it"
    if seen["store"] != expected["store"]:
        return f"sees another store at {path} than the trainer; put the same one there"
    return None


def dask_setup(worker: Any) -> None:
    """In a worker that the trainer started itself: leave Ctrl-C to the trainer.

    The terminal sends it to all; the trainer needs its workers until the pass is done. They end
    with it, however it ends.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _served(stretch: Stretch) -> LocalBackend:
    """The rows of the stretch, opened now, or still there from the last task."""
    global _kept
    if _kept is None or _kept[0] != stretch:
        if _kept is not None:
            _kept[1].close()
        _kept = None
        if reason := difference(look(stretch.store), stretch.seen, stretch.store):
            raise UnfitWorker(reason)
        warm_up(stretch.kernel)
        whole = open_dataset(stretch.store, with_labels=False)
        part = _Part(whole, stretch.start, stretch.stop)
        plan = plan_memory(stretch.memory_limit, part)
        for_data = 3 * (plan.resident + plan.solver) // 4  # the rest: columns, sums, moved rows
        threads = min(stretch.threads, available_threads())
        _kept = stretch, part, LocalBackend(part, stretch.kernel, for_data, threads)
    return _kept[2]
