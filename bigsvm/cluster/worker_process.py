"""What all worker processes of a cluster share, whichever command they serve."""

import signal
import threading
import time
from typing import Any

import numba
import numpy as np

from bigsvm.core.version import ARITHMETIC, __version__


class UnfitWorker(Exception):
    """A worker whose results would differ from those of the others; the message says why."""


# Tasks run one at a time: each uses all threads of the worker, and numba's simplest threading layer
# (workqueue) does not support concurrent callers.
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
    """How the versions of a worker differ from those of `whose`, for a message; None if equal."""
    for name in software_versions():
        if seen.get(name) != expected[name]:
            return (
                f"has {name} {seen.get(name)}, and {whose} has {expected[name]}; "
                "install the same version there"
            )
    return None


def dask_setup(worker: Any) -> None:
    """Ignore Ctrl-C in a worker that the trainer or a Slurm job started (Dask calls this hook).

    The terminal sends the signal to the whole process group, but the trainer needs its workers to
    complete the pass. The workers end with the trainer, however it ends, or with their nanny.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    use_monotonic_clock()


def use_monotonic_clock() -> None:
    """Make Dask's batched messages immune to a system clock that is set back."""
    from distributed import batched

    batched.time = time.monotonic
