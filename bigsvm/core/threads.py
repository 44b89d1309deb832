"""The number of threads that compiled code uses."""

from collections.abc import Iterator
from contextlib import contextmanager

import numba


@contextmanager
def use_threads(count: int | None) -> Iterator[None]:
    """Run compiled code with `count` threads inside the block; None changes nothing."""
    if count is None:
        yield
        return
    before = numba.get_num_threads()
    numba.set_num_threads(count)
    try:
        yield
    finally:
        numba.set_num_threads(before)


def available_threads() -> int:
    """The number of threads that numba was started with."""
    return int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
