"""Would kernels on sparse rows pay? NUMBA_NUM_THREADS=1 python -m scripts.benchmarks.sparse

RBF columns of 16 rows over all others: the package's kernels on dense rows, and a loop over rows in
CSR form with the 16 rows spread out beside each other. On a9a, and on rows like those of rcv1: 75
words drawn by Zipf's law, scaled to length 1. Nanoseconds a kernel value, and the size of the rows.
"""

import argparse
import os
from pathlib import Path

import numba
import numpy as np
from scipy import sparse
from sklearn.datasets import load_svmlight_file

from bigsvm.core.compiled import parallel_njit
from bigsvm.kernels import Kernel, block_of, columns
from scripts.benchmarks.kernels import best_of

COLUMNS = 16
DENSE_VALUES = 100_000_000  # kernels on dense rows are timed on as many rows as make this


@parallel_njit(fastmath=True)
def csr_columns(values, words, starts, norms, turned, row_norms, gamma, out):  # type: ignore[no-untyped-def]
    """exp(-gamma |x_i - z_j|^2) at out[j, i]; `turned` is (features, COLUMNS)."""
    for i in numba.prange(len(starts) - 1):
        products = np.zeros(COLUMNS, np.float32)
        for k in range(starts[i], starts[i + 1]):
            of_word = turned[words[k]]
            for j in range(COLUMNS):
                products[j] += values[k] * of_word[j]
        for j in range(COLUMNS):
            out[j, i] = np.exp(-gamma * (norms[i] + row_norms[j] - 2 * products[j]))


def text_like(n: int, d: int, words: int = 75) -> sparse.csr_array:
    """Rows of words drawn by Zipf's law, of length 1."""
    rng = np.random.default_rng(0)
    often = 1 / np.arange(1, d + 1) ** 0.9
    drawn = rng.choice(d, size=n * words, p=often / often.sum())
    starts = np.arange(0, n * words + 1, words)
    rows = sparse.csr_array((rng.random(n * words), drawn, starts), shape=(n, d))
    rows.sum_duplicates()
    return sparse.csr_array(rows.multiply(1 / np.sqrt(rows.power(2).sum(axis=1))[:, None]))


def measure(name: str, rows: sparse.csr_array, gamma: float) -> None:
    """Print one line of the table."""
    (n, d), rows = rows.shape, sparse.csr_array(rows, dtype=np.float32)
    z, norms = rows[:COLUMNS].toarray(), rows.power(2).sum(axis=1)
    m = min(n, DENSE_VALUES // d)
    block, kernel = block_of(rows[:m].toarray()), Kernel("rbf", gamma)
    out, dense_out = np.empty((COLUMNS, n), np.float32), np.empty((COLUMNS, m), np.float32)
    csr = (rows.data, rows.indices, rows.indptr, norms, z.T.copy(), norms[:COLUMNS])
    of_csr, of_dense = best_of(
        5,
        lambda: csr_columns(*csr, np.float32(gamma), out),
        lambda: columns(kernel, block, z, dense_out, np.arange(COLUMNS)),
    )
    assert np.abs(out[:, :m] - dense_out).max() < 1e-5
    print(
        f"| {name} | {d:,} | {rows.nnz / (n * d):.2%} | {4 * n * d / 2**20:,.0f}, "
        f"{8 * rows.nnz / 2**20:,.0f} MiB | {1e9 * of_dense / (COLUMNS * m):.1f}, "
        f"{1e9 * of_csr / (COLUMNS * n):.1f} ns |"
    )


def main() -> None:
    """Measure all."""
    argparse.ArgumentParser(
        prog="python -m scripts.benchmarks.sparse", description=__doc__.splitlines()[0]
    ).parse_args()
    print("| rows | features | given | dense, CSR | dense, CSR |\n| --- | --- | --- | --- | --- |")
    measure("a9a", load_svmlight_file(str(Path(os.environ["BIGSVM_DATA"], "a9a")))[0], 0.05)
    for d in (300, 1000, 5000, 50_000):
        measure("like rcv1", text_like(20_000, d), 1.0)


if __name__ == "__main__":
    main()
