"""The exact schedule against a plain numpy loop: python -m scripts.benchmarks.numpy_loop

On MiniBooNE (needs BIGSVM_DATA, or the network). The plain loop computes two kernel columns an
iteration with numpy; some of its iterations are timed. The exact schedule runs to the end several
times: at first it computes the columns it needs, later it has them all.
"""

import argparse
import time

import numpy as np

from bigsvm.backends.local import LocalBackend
from bigsvm.config import DataConfig, PrepareOptions
from bigsvm.core.stop_rule import StopRule
from bigsvm.kernels import Kernel
from bigsvm.preparation.data_sets import resolve_data
from bigsvm.solvers.column_cache import space_for_columns
from bigsvm.solvers.joint import JointProblem
from bigsvm.solvers.problem import Problem
from bigsvm.solvers.schedule import ExactSchedule
from bigsvm.stores.store import open_dataset

OPTIONS = PrepareOptions(scaling="standard", clip=8, drop_value=-999, test_rows=12825)


def plain(x: np.ndarray, y: np.ndarray, gamma: float, iterations: int) -> float:
    """Seconds for mfw with C = 1 in numpy, as anyone would write it."""
    squares = (x**2).sum(1)

    def column(i: int) -> np.ndarray:
        k = np.exp(-gamma * (squares + squares[i] - 2 * (x @ x[i])))
        q = y * y[i] * k.astype(np.float64)
        q[i] += 1.0
        return q

    begin = time.perf_counter()
    alpha = np.zeros(len(y))
    alpha[0] = 1.0
    g = column(0)
    working = np.zeros(len(y), bool)
    working[0] = True
    for _ in range(iterations):
        u = int(np.argmin(np.where(working, np.inf, g)))
        if g[u] < 0:
            working[u] = True
        s = int(np.argmin(np.where(working, g, np.inf)))
        v = int(np.argmax(np.where(alpha > 0, g, -np.inf)))
        q_s, q_v = column(s), column(v)
        step = min((g[v] - g[s]) / (q_s[s] + q_v[v] - 2 * q_s[v]), alpha[v])
        alpha[s] += step
        alpha[v] -= step
        g += step * (q_s - q_v)
    return time.perf_counter() - begin


def exact(problem: JointProblem, schedule: ExactSchedule) -> tuple[float, int]:
    """Seconds and iterations to the end."""
    begin = time.perf_counter()
    state = problem.start(0)
    for _ in schedule.run(state):
        pass
    return time.perf_counter() - begin, state.iteration


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=500, help="of the plain loop")
    parser.add_argument("--memory", type=float, default=4.0, help="GiB for columns")
    options = parser.parse_args()
    data = resolve_data(DataConfig(source="miniboone", prepare=OPTIONS))
    with open_dataset(str(data.train)) as dataset:
        x, y = dataset.read(0, dataset.n), dataset.labels()
        kernel = Kernel("rbf", 1 / 72)
        backend = LocalBackend(dataset, kernel, 2**30)
        problem = JointProblem([Problem(backend, y, 1.0, "mfw", StopRule(absolute=1e-5))])
        schedule = ExactSchedule(problem, space_for_columns(int(options.memory * 2**30), len(y)))
        first, iterations = exact(problem, schedule)
        numpy_time = plain(x, y, kernel.gamma, options.iterations) / options.iterations
        again, _ = exact(problem, schedule)
        numpy_time = min(
            numpy_time, plain(x, y, kernel.gamma, options.iterations) / options.iterations
        )
        again = min(again, exact(problem, schedule)[0])
    print(f"{len(y):,} patterns, {iterations:,} iterations to the end")
    print(f"plain numpy loop            {1e6 * numpy_time:8.0f} us an iteration")
    for name, seconds in (("computing its columns", first), ("with all columns cached", again)):
        each = seconds / iterations
        print(f"exact, {name:<24} {1e6 * each:5.0f} us {numpy_time / each:6.1f} times faster")


if __name__ == "__main__":
    main()
