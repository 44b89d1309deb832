"""What every worker process of a cluster shares, whichever command it serves."""

import signal
import threading
import time
from typing import Any

import numba
import numpy as np

from bigsvm.core.version import ARITHMETIC, __version__


class UnfitWorker(Exception):
    """A worker that would not compute what the others compute; the message says why."""


# One task at a time: it has all of the worker's threads, and numba's simplest threading layer
# (workqueue) does not bear two callers.
task_lock = threading.Lock()


def software_versions() -> dict[str, Any]:
    """The versions that must be the same on every worker."""
    return {
        "bigsvm": __version__,
        "arithmetic": ARITHMETIC,
        "numpy": np.__version__,
        "numba": numba.__version__,
    }


def version_mismatch(seen: dict[str, Any], expected: dict[str, Any], whose: str) -> str | None:
    """In what versions a worker differs from `whose`, in words; None where in none."""
    for name in software_versions():
        if seen.get(name) != expected[name]:
            return (
                f"has {name} {seen.get(name)}, and {whose} has {expected[name]}; "
                "install the same version there"
            )
    return None


def dask_setup(worker: Any) -> None:
    """In a worker that the trainer started itself: leave Ctrl-C to the trainer.

    The terminal sends it to all; the trainer needs its workers until the pass is done. They end
    with it, however it ends.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    use_monotonic_clock()


def use_monotonic_clock() -> None:
    """Let a clock that is set back not hold Dask's messages until it has caught up."""
    from distributed import batched

    batched.time = time.monotonic
