"""Cross-validation in this process: folds in parallel threads that share kernel matrices."""

from collections import Counter
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import groupby

import numpy as np

from bigsvm.solvers.precomputed import kernel_matrix
from bigsvm.tuning.cross_validation import FoldResult, FoldTask, Grid, Split, validate_fold

_POLL_SECONDS = 0.1


def validate_locally(
    rows: np.ndarray,
    split: Split,
    grid: Grid,
    tasks: list[FoldTask],
    threads: int,
    matrices: int,
    interrupted: Callable[[], bool],
) -> Generator[tuple[FoldTask, FoldResult], None, None]:
    """Yield results as folds finish; the tasks of one kernel must be adjacent in `tasks`.

    Only this thread computes kernel matrices, because numba's workqueue threading layer does not
    allow concurrent callers. At most `matrices` of them are held at a time. Ends early when
    interrupted.
    """
    stop = np.zeros(1, bool)
    waiting: dict[Future[FoldResult], FoldTask] = {}
    unfinished: Counter[int] = Counter()

    def collect(held: int) -> Iterator[tuple[FoldTask, FoldResult]]:
        """Yield finished folds until at most `held` matrices are in use."""
        while len(unfinished) > held and not interrupted():
            done, _ = wait(waiting, _POLL_SECONDS, FIRST_COMPLETED)
            for future in done:
                task, result = waiting.pop(future), future.result()
                unfinished[task.kernel] -= 1
                if not unfinished[task.kernel]:
                    del unfinished[task.kernel]
                yield task, result

    with ThreadPoolExecutor(threads) as pool:
        try:
            for kernel, of_kernel in groupby(tasks, key=lambda task: task.kernel):
                yield from collect(matrices - 1)
                if interrupted():
                    return
                matrix = kernel_matrix(grid.kernels[kernel], rows)
                for task in of_kernel:
                    future = pool.submit(validate_fold, matrix, split, task, grid, stop)
                    waiting[future] = task
                    unfinished[kernel] += 1
                del matrix
            yield from collect(0)
        finally:
            stop[0] = True  # makes running folds return at once
            for future in waiting:
                future.cancel()
