"""Compiles the steps in a second process while the trainer prepares its data, at the first start.

The trainer compiles the kernels meanwhile, and then finds the steps in numba's cache on disk. A
thread would not help: numba compiles under a lock.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
from numba.core import event

from bigsvm.config import SolverConfig
from bigsvm.core.compiled import available_threads, is_cached
from bigsvm.kernels import LANES, Kernel
from bigsvm.solvers.conjugate import Point, conjugate_steps, find_nodes, new_direction
from bigsvm.solvers.hot_columns import HotColumns
from bigsvm.solvers.state import SUPPORT


@contextmanager
def compile_ahead(solver: SolverConfig) -> Iterator[Callable[[], None]]:
    """Start compiling the steps of the block schedule; yield a function that waits for the end."""
    exact = solver.schedule == "exact" or solver.absolute_tolerance is not None
    if exact or available_threads() < 2 or is_cached(conjugate_steps):
        yield lambda: None
        return
    process = subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,  # the trainer compiles, and complains, itself if this fails
        start_new_session=True,  # Ctrl-C is for the trainer
    )

    def wait() -> None:
        with event.trigger_event("numba:compile"):  # counts as time spent compiling
            process.wait()

    try:
        yield wait
    finally:
        process.kill()
        process.wait()


def compile_steps() -> None:
    """Compile what `hot_steps` calls, by calls that take no step."""
    n = LANES
    zeros, role, signs = np.zeros(n), np.full(n, SUPPORT, np.int8), np.ones(n, np.int8)
    point = Point(zeros, zeros.copy(), role, np.arange(n), signs, np.ones(n), 0.0)
    direction = new_direction(n, 1.0)
    backend: Any = SimpleNamespace(gather=lambda index: index, columns=lambda *_: None)
    columns = HotColumns(Kernel("rbf"), 2**20, n)
    columns.follow(np.arange(n), backend)
    columns.fetch(0, 1, point.gradient, point.role)
    find_nodes(point, direction)
    conjugate_steps(point, direction, columns.at_hand, (0.0, 0.0), 0, 0)


if __name__ == "__main__":
    compile_steps()
