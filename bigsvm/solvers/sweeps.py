"""The two sweeps over a subproblem that a conjugate pairwise step makes, in LLVM vectors."""

from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from bigsvm.core.compiled import inner_njit
from bigsvm.kernels.simd import WIDTH, Vectors, each_vector
from bigsvm.solvers.state import IDLE, SUPPORT

# Patterns whose extremes are noted together, so that a node is then looked for among few.
BLOCK = 512
WAITING, LOWEST, HIGHEST = range(3)  # rows of extremes


@inner_njit(cache=True, nogil=True)
def update_gradient(point, product, k_s, k_v, factors, extremes):  # type: ignore[no-untyped-def]
    """Q d = beta Q d + (Q_s - Q_v) and g = g + length Q d, but for the diagonal of Q; and extremes.

    `factors` are beta, the length, the signs of s and v, and what the intercept adds. The rows of
    `extremes` are, for each block of patterns, the lowest derivative of an idle pattern, the lowest
    in the working set and the highest in the support.
    """
    n = point.gradient.shape[0]
    lanes = np.empty((3, WIDTH))
    for block in range(extremes.shape[1]):
        start, stop = block * BLOCK, min((block + 1) * BLOCK, n)
        arrays = (point.gradient, product, point.role, point.signs, k_s, k_v)
        _update_lanes(arrays, factors, start, stop, lanes)
        extremes[WAITING, block] = lanes[WAITING].min()
        extremes[LOWEST, block] = lanes[LOWEST].min()
        extremes[HIGHEST, block] = lanes[HIGHEST].max()


@inner_njit(cache=True, nogil=True)
def best_gains(point, k_s, g_s, q_ss, factor, gains):  # type: ignore[no-untyped-def]
    """The largest decrease that a pairwise step to s promises, for each block of patterns.

    It is (g_i - g_s)^2 / (Q_ss + Q_ii - 2 Q_si) for an away node i of the support with g_i > g_s;
    -1 where there is none. `factor` is twice the sign of s.
    """
    n = point.gradient.shape[0]
    lanes = np.empty((1, WIDTH))
    shift = factor * point.intercept
    for block in range(len(gains)):
        start, stop = block * BLOCK, min((block + 1) * BLOCK, n)
        arrays = (point.gradient, point.role, point.signs, point.diagonal, k_s)
        _gain_lanes(arrays, (g_s, q_ss, factor, shift), start, stop, lanes)
        gains[block] = lanes.max()


@inner_njit(cache=True, nogil=True)
def gain_of(point, k_s, g_s, q_ss, factor, i):  # type: ignore[no-untyped-def]
    """That decrease for one pattern, in the same bits."""
    if point.role[i] != SUPPORT or not point.gradient[i] > g_s:
        return -1.0
    shift = factor * point.intercept
    fall = point.gradient[i] - g_s
    curvature = (q_ss + point.diagonal[i]) - point.signs[i] * (factor * np.float64(k_s[i]) + shift)
    return (fall * fall) / curvature


@intrinsic
def _update_lanes(typing_context, arrays, factors, start, stop, lanes):  # type: ignore[no-untyped-def]
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vectors = Vectors(context, builder)
        data = vectors.data_of_each(signature.args[0], arguments[0])
        factors = cgutils.unpack_tuple(builder, arguments[1])
        beta, length, sign_s, sign_v, shift = (vectors.splat(factor) for factor in factors)
        lowest, highest = vectors.constant(np.inf), vectors.constant(-np.inf)

        def body(i: Any, best: list) -> list:
            g, q, role, sign, k_s, k_v = (vectors.load_double(array, i) for array in data)
            change = sign * (sign_s * k_s - sign_v * k_v + shift)
            q = beta * q + change
            g = g + length * q
            vectors.store(q, data[1], i)
            vectors.store(g, data[0], i)
            idle, support = vectors.constant(IDLE), vectors.constant(SUPPORT)
            return [
                best[WAITING].minimum(role.compare("==", idle).select(g, lowest)),
                best[LOWEST].minimum(role.compare(">", idle).select(g, lowest)),
                best[HIGHEST].maximum(role.compare("==", support).select(g, highest)),
            ]

        start, stop = arguments[2:4]
        found = each_vector(vectors, builder, start, stop, [lowest, lowest, highest], body)
        out = vectors.data(signature.args[4], arguments[4])
        for row, best in enumerate(found):
            vectors.store(best, out, start.type(row * WIDTH))
        return context.get_dummy_value()

    return types.void(arrays, factors, types.intp, types.intp, lanes), emit


@intrinsic
def _gain_lanes(typing_context, arrays, factors, start, stop, lanes):  # type: ignore[no-untyped-def]
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vectors = Vectors(context, builder)
        data = vectors.data_of_each(signature.args[0], arguments[0])
        factors = cgutils.unpack_tuple(builder, arguments[1])
        g_s, q_ss, factor, shift = (vectors.splat(factor) for factor in factors)
        none, support = vectors.constant(-1.0), vectors.constant(SUPPORT)

        def body(i: Any, best: list) -> list:
            g, role, sign, diagonal, k_s = (vectors.load_double(array, i) for array in data)
            fall = g - g_s
            curvature = (q_ss + diagonal) - sign * (factor * k_s + shift)
            gain = (fall * fall) / curvature
            eligible = role.compare("==", support) & g.compare(">", g_s)
            return [best[0].maximum(eligible.select(gain, none))]

        start, stop = arguments[2:4]
        found = each_vector(vectors, builder, start, stop, [none], body)
        vectors.store(found[0], vectors.data(signature.args[4], arguments[4]), start.type(0))
        return context.get_dummy_value()

    return types.void(arrays, factors, types.intp, types.intp, lanes), emit
