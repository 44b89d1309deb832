"""Training and testing where the whole kernel matrix would not fit: columns on demand."""

from typing import Any

import numpy as np

from bigsvm.backends.in_memory import InMemoryBackend
from bigsvm.config import normalized_C
from bigsvm.estimator.fit import FitOptions, fit_classes
from bigsvm.kernels import block_of, products
from bigsvm.solvers.solve import Monitor
from scripts.paper import task_cache
from scripts.paper.partitions import Rows, partition, sample
from scripts.paper.tuned import MOST_ITERATIONS, STOP_RULE, kernel_of

QUICK_ROWS = 600


def rows_of(dataset: str, quick: bool) -> tuple[Rows, Rows]:
    """Training and test rows of a larger set; a part of them for a quick look."""
    train, test = partition(dataset, 0)
    return (sample(train, QUICK_ROWS), sample(test, QUICK_ROWS)) if quick else (train, test)


def tested(
    train: Rows, test: Rows, C: float, sigma: float | None, algorithm: str
) -> dict[str, Any]:
    """Accuracy, support vectors and iterations of one model, by the exact schedule."""
    kernel = kernel_of(sigma)
    plain = normalized_C(C, *train.x.shape)
    columns = task_cache.memory_share()  # the result does not depend on how many are kept
    options = FitOptions(kernel, plain, algorithm, "exact", STOP_RULE, columns, 0, MOST_ITERATIONS)
    (fitted,) = fit_classes(InMemoryBackend(train.x, kernel), [train.y], options, Monitor())
    support = np.flatnonzero(fitted.alpha)
    coef = (fitted.alpha[support] * train.y[support])[:, None]
    decided = np.zeros((1, len(test)))
    products(kernel, block_of(test.x), train.x[support], coef, decided)
    return {
        "accuracy_percent": round(100 * float(np.mean((decided[0] >= 0) == (test.y > 0))), 4),
        "support_vectors": len(support),
        "iterations": fitted.iterations,
        "converged": fitted.status == "converged",
    }
