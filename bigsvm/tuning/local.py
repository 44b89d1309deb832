"""Cross-validation in this process: folds in parallel threads, on matrices as memory allows."""

from collections import Counter
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import groupby

import numpy as np

from bigsvm.solvers.whole_matrix import kernel_matrix
from bigsvm.tuning.cross_validation import Grid, Measures, Split, Unit, validate_fold

_SECONDS_BETWEEN_LOOKS = 0.1


def validate_locally(
    rows: np.ndarray,
    split: Split,
    grid: Grid,
    units: list[Unit],
    threads: int,
    matrices: int,
    interrupted: Callable[[], bool],
) -> Generator[tuple[Unit, Measures], None, None]:
    """Yield the units as they are finished; those of one kernel stand together in `units`.

    Only this thread computes kernel matrices: numba's simplest threading layer does not bear two
    callers. At most `matrices` of them are held at a time. Ends early when interrupted.
    """
    stop = np.zeros(1, bool)
    waiting: dict[Future[Measures], Unit] = {}
    unfinished: Counter[int] = Counter()

    def finished(held: int) -> Iterator[tuple[Unit, Measures]]:
        """Wait until no more than so many matrices are in use."""
        while len(unfinished) > held and not interrupted():
            done, _ = wait(waiting, _SECONDS_BETWEEN_LOOKS, FIRST_COMPLETED)
            for future in done:
                unit, measures = waiting.pop(future), future.result()
                unfinished[unit.kernel] -= 1
                if not unfinished[unit.kernel]:
                    del unfinished[unit.kernel]
                yield unit, measures

    with ThreadPoolExecutor(threads) as pool:
        try:
            for kernel, of_kernel in groupby(units, key=lambda unit: unit.kernel):
                yield from finished(matrices - 1)
                if interrupted():
                    return
                matrix = kernel_matrix(grid.kernels[kernel], rows)
                for unit in of_kernel:
                    future = pool.submit(validate_fold, matrix, split, unit.fold, grid, stop)
                    waiting[future] = unit
                    unfinished[kernel] += 1
                del matrix
            yield from finished(0)
        finally:
            stop[0] = True  # whoever is still at work leaves at once
            for future in waiting:
                future.cancel()
