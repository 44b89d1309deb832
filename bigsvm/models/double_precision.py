"""Decision values in float64, as other programs compute them from an exported model.

`bigsvm.kernels` rounds every kernel value to float32, for speed. Here only the constants are
rounded, to the same values as there: this is what the other programs compute.
"""

import math
from dataclasses import replace

import numpy as np
from numba import prange

from bigsvm.core.compiled import parallel_njit
from bigsvm.kernels import NAMES, Kernel

# exp(-t) is constant from this t on: 2^-126, the smallest normal float32.
LARGEST_EXPONENT = 126 * math.log(2)
_RBF, _LAPLACIAN, _LINEAR, _POLY = (
    NAMES.index(name) for name in ("rbf", "laplacian", "linear", "poly")
)


def as_computed(kernel: Kernel) -> Kernel:
    """The kernel with its parameters rounded to float32, as `bigsvm.kernels` uses them."""
    gamma, coef0, degree = kernel.parameters
    exponential = kernel.name in ("rbf", "laplacian")  # whose gamma is stored for powers of two
    rate = float(gamma) * math.log(2) if exponential else float(gamma)
    return replace(kernel, gamma=rate, coef0=float(coef0), degree=degree)


def precise_decisions(
    kernel: Kernel, rows: np.ndarray, support_vectors: np.ndarray, coef: np.ndarray
) -> np.ndarray:
    """sum_j coef[j, c] k(support vector j, row i), as (c, i); the rows are scaled."""
    exact = as_computed(kernel)
    rows = np.ascontiguousarray(rows, np.float32)
    parameters = (NAMES.index(exact.name), exact.gamma, exact.coef0, exact.degree)
    return _decisions(rows, np.ascontiguousarray(support_vectors), coef, *parameters)


@parallel_njit(cache=True, nogil=True)
def _decisions(  # type: ignore[no-untyped-def]
    rows, support_vectors, coef, kind, gamma, coef0, degree
):
    out = np.zeros((coef.shape[1], len(rows)))
    for i in prange(len(rows)):
        for j in range(len(coef)):
            value = 0.0
            for k in range(rows.shape[1]):
                x, z = np.float64(rows[i, k]), np.float64(support_vectors[j, k])
                if kind == _RBF:
                    value += (x - z) * (x - z)
                elif kind == _LAPLACIAN:
                    value += abs(x - z)
                else:
                    value += x * z
            if kind == _RBF or kind == _LAPLACIAN:  # noqa: SIM109
                value = math.exp(-min(gamma * value, LARGEST_EXPONENT))
            elif kind == _POLY:
                value = (gamma * value + coef0) ** degree
            for c in range(coef.shape[1]):
                out[c, i] += coef[j, c] * value
    return out
