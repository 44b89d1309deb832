"""The kernels against numpy's matrix product: python -m scripts.benchmarks.kernels

For each number of features and of columns: milliseconds a column over 100,000 rows for `products`
(the pass) and `columns`, their share of the time that numpy's float32 product alone takes (no
exponential), and the largest error of a kernel value against float64. From 128 features on RBF
values are made of products with the default --gamma; 4 has them made of differences, and about 1.39
some of both in the same tiles, which is the dearest (see bigsvm/kernels/wide_rbf.py).
"""

import argparse
import platform
import time
from collections.abc import Callable

import numba
import numpy as np

from bigsvm.kernels import Kernel, block_of, columns, products

AWAKE = 0.02  # seconds for which a short call is repeated: threads take that long to wake up


def best_of(repeat: int, *calls: Callable[[], object]) -> list[float]:
    """The shortest time of each call; they take turns, so that noise affects all alike."""
    shortest = [np.inf] * len(calls)
    for call in calls:
        call()
    for _ in range(repeat):
        for i, call in enumerate(calls):
            time.sleep(0.1)  # numpy's threads and ours spin for a while, and would hold a core
            call()
            until = time.perf_counter() + AWAKE
            while (begin := time.perf_counter()) < until:
                call()
                shortest[i] = min(shortest[i], time.perf_counter() - begin)
    return shortest


def measure(d: int, q: int, repeat: int, gamma: float) -> tuple[float, float, float, float]:
    rng = np.random.default_rng(0)
    n = min(100_000, 40_000_000 // max(d, q))
    x = rng.standard_normal((n, d), dtype=np.float32)
    rows = rng.standard_normal((q, d), dtype=np.float32)
    kernel, block = Kernel("rbf", gamma / d), block_of(x)
    coef, sums = rng.standard_normal((q, 1)), np.zeros((1, n))
    out, product = np.empty((q, n), np.float32), np.empty((n, q), np.float32)
    slots = np.arange(q)
    seconds = best_of(
        repeat,
        lambda: np.dot(x, rows.T, out=product),
        lambda: products(kernel, block, rows, coef, sums),
        lambda: columns(kernel, block, rows, out, slots),
    )
    some = rows[:50].astype(np.float64)
    distance = ((x[:2000, None].astype(np.float64) - some) ** 2).sum(-1)
    error = np.abs(out[:50, :2000].T - np.exp(-kernel.gamma * distance)).max()
    gemm, whole, separate = (1e3 * s / q * 100_000 / n for s in seconds)
    return gemm, whole, separate, float(error)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--features", type=int, nargs="+", default=[10, 22, 50, 200, 784])
    parser.add_argument("--columns", type=int, nargs="+", default=[1, 16, 256, 2000])
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--gamma", type=float, default=0.5, help="times the number of features")
    options = parser.parse_args()
    print(f"{platform.processor() or platform.machine()}, {numba.get_num_threads()} threads")
    print(f"{'d':>4} {'columns':>8} {'gemm ms':>8} {'pass ms':>8} {'of gemm':>8} ", end="")
    print(f"{'columns ms':>10} {'of gemm':>8} {'error':>8}")
    for d in options.features:
        for q in options.columns:
            gemm, whole, separate, error = measure(d, q, options.repeat, options.gamma)
            print(f"{d:>4} {q:>8} {gemm:>8.4f} {whole:>8.4f} {whole / gemm:>8.2f} ", end="")
            print(f"{separate:>10.4f} {separate / gemm:>8.2f} {error:>8.1e}", flush=True)


if __name__ == "__main__":
    main()
