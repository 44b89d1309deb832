"""The three nodes of a Frank-Wolfe step, found in the same sweep that updates the gradient."""

from typing import Any, NamedTuple

import numpy as np
from numba import prange, types
from numba.core import cgutils
from numba.extending import intrinsic

from bigsvm.core.compiled import inner_njit, njit, threads_lost
from bigsvm.kernels.simd import WIDTH, Vectors, each_vector
from bigsvm.solvers.state import EXCLUDED, IDLE, SUPPORT

_BLOCK = 2048
_IDLE, _WORKING, _SUPPORT = range(3)  # rows of extremes
# With fewer patterns, waiting for the other threads costs more than they save.
WORTH_THREADS = 32_768


class Iterate(NamedTuple):
    """A point of the simplex with its gradient, and the problem: what compiled steps work on.

    `C` and `signs` are those of each pattern; see `Problem`.
    """

    alpha: Any
    gradient: Any
    role: Any
    signs: Any
    C: Any
    intercept: Any


@njit(cache=True, nogil=True)
def find_nodes(gradient, role):  # type: ignore[no-untyped-def]
    """Where the gradient is extreme: the lowest index among equals, -1 where there is none.

    A pattern with a role below IDLE takes no part.

    Returns
    -------
    idle : int
        Lowest derivative among the idle patterns: the next to join, if it is 0 or less.
    forward : int
        Lowest derivative in the working set.
    away : int
        Highest derivative in the support.
    """
    idle = forward = away = -1
    for i in range(len(gradient)):
        g = gradient[i]
        if role[i] == IDLE:
            if idle < 0 or g < gradient[idle]:
                idle = i
        elif role[i] > IDLE and (forward < 0 or g < gradient[forward]):
            forward = i
        if role[i] == SUPPORT and (away < 0 or g > gradient[away]):
            away = i
    return idle, forward, away


@njit(cache=True, nogil=True)
def pairwise_gap(gradient, role):  # type: ignore[no-untyped-def]
    """The gap between the nodes of the next step, and whether an idle pattern waits to join.

    One that does counts as if it had. NaN where a derivative is one. Compiled, because each mask of
    a numpy expression is as long as the data.
    """
    lowest, highest, has_violator = np.inf, -np.inf, False
    for i in range(len(gradient)):
        if role[i] < IDLE:
            continue
        g = gradient[i]
        if np.isnan(g):
            return np.nan, has_violator
        joins = role[i] == IDLE and g <= 0
        has_violator |= joins
        if joins or role[i] > IDLE:
            lowest = min(lowest, g)
        if role[i] == SUPPORT:
            highest = max(highest, g)
    return highest - lowest, has_violator


@njit(cache=True, nogil=True)
def update_gradient(iterate, k_s, k_v, s, v, step):  # type: ignore[no-untyped-def]
    """Add ``step (Q_s - Q_v)`` to the gradient and find its new nodes, in one sweep.

    `k_s` and `k_v` are kernel columns: without signs, intercept and the diagonal 1/C of Q. Returns
    the nodes as `find_nodes` does.
    """
    gradient, role = iterate.gradient, iterate.role
    n = gradient.shape[0]
    masked = mask_pair(iterate, k_s, k_v, s, v, step)
    sign_s, sign_v = np.float64(iterate.signs[s]), np.float64(iterate.signs[v])
    factors = step, sign_s, sign_v, iterate.intercept * (sign_s - sign_v)
    extremes = np.empty((3, -(-n // _BLOCK)))
    if n < WORTH_THREADS or threads_lost():
        _sweep_all(iterate, k_s, k_v, factors, extremes)
    else:
        _sweep_all_in_parallel(iterate, k_s, k_v, factors, extremes)
    found = np.full(3, -1)
    for kind in range(3):
        block = np.argmax(extremes[kind]) if kind == _SUPPORT else np.argmin(extremes[kind])
        start, stop = block * _BLOCK, min((block + 1) * _BLOCK, n)
        found[kind] = locate(gradient, role, kind, extremes[kind, block], start, stop)
    return unmask_pair(iterate, s, v, masked, found)


@inner_njit(cache=True, nogil=True)
def _sweep_all(iterate, k_s, k_v, factors, extremes):  # type: ignore[no-untyped-def]
    for block in range(extremes.shape[1]):
        _sweep_block(iterate, k_s, k_v, factors, extremes, block)


@njit(cache=True, nogil=True, parallel=True)
def _sweep_all_in_parallel(iterate, k_s, k_v, factors, extremes):  # type: ignore[no-untyped-def]
    for block in prange(extremes.shape[1]):
        _sweep_block(iterate, k_s, k_v, factors, extremes, block)


@inner_njit(cache=True, nogil=True)
def _sweep_block(iterate, k_s, k_v, factors, extremes, block):  # type: ignore[no-untyped-def]
    start, stop = block * _BLOCK, min((block + 1) * _BLOCK, len(iterate.gradient))
    lowest_idle, lowest_working, highest = sweep(iterate, k_s, k_v, factors, start, stop)
    extremes[_IDLE, block] = lowest_idle
    extremes[_WORKING, block] = lowest_working
    extremes[_SUPPORT, block] = highest


@inner_njit(cache=True, nogil=True)
def q_entries(iterate, k_s, k_v, s, v):  # type: ignore[no-untyped-def]
    """Q_ss, Q_vv and Q_sv."""
    signs, C, intercept = iterate.signs, iterate.C, iterate.intercept
    sign_s, sign_v = np.float64(signs[s]), np.float64(signs[v])
    q_ss = sign_s * sign_s * (np.float64(k_s[s]) + intercept) + 1.0 / C[s]
    q_vv = sign_v * sign_v * (np.float64(k_v[v]) + intercept) + 1.0 / C[v]
    return q_ss, q_vv, sign_s * sign_v * (np.float64(k_s[v]) + intercept)


@inner_njit(cache=True, nogil=True)
def mask_pair(iterate, k_s, k_v, s, v, step):  # type: ignore[no-untyped-def]
    """Take s and v out of the coming sweep; returns their new derivatives and their roles.

    The diagonal of Q concerns them alone. After a full step both have the same derivative but for
    rounding, so that the choice between them hangs on the last bit: it must be the bit of
    step (Q_s - Q_v), computed in this order.
    """
    gradient, role = iterate.gradient, iterate.role
    q_ss, q_vv, q_sv = q_entries(iterate, k_s, k_v, s, v)
    new_s = gradient[s] + step * (q_ss - q_sv)
    new_v = gradient[v] + step * (q_sv - q_vv)
    masked = (new_s, new_v, role[s], role[v])
    role[s] = role[v] = EXCLUDED
    return masked


@inner_njit(cache=True, nogil=True)
def unmask_pair(iterate, s, v, masked, found):  # type: ignore[no-untyped-def]
    """Undo `mask_pair`, and let s and v compete with the nodes `found` without them."""
    gradient, role = iterate.gradient, iterate.role
    gradient[s], gradient[v], role[s], role[v] = masked
    idle, forward, away = found
    for i in (s, v):
        if forward < 0 or (gradient[i], i) < (gradient[forward], forward):
            forward = i
        if role[i] == SUPPORT and (away < 0 or (gradient[i], -i) > (gradient[away], -away)):
            away = i
    return idle, forward, away


@njit(cache=True, nogil=True)
def sweep(iterate, k_s, k_v, factors, start, stop):  # type: ignore[no-untyped-def]
    """Update the gradient from start to stop; returns the extremes over idle, working, support.

    `factors` are the step, the signs of s and v, and what the intercept adds to Q_s - Q_v.
    """
    gradient, role, signs = iterate.gradient, iterate.role, iterate.signs
    step, sign_s, sign_v, shift = factors
    whole = start + (stop - start) // WIDTH * WIDTH
    lowest_idle, lowest_working, highest = np.inf, np.inf, -np.inf
    if whole > start:
        lanes = np.empty((3, WIDTH))
        _sweep_lanes((gradient, role, signs, k_s, k_v), factors, start, whole, lanes)
        lowest_idle, lowest_working = lanes[_IDLE].min(), lanes[_WORKING].min()
        highest = lanes[_SUPPORT].max()
    for i in range(whole, stop):
        difference = sign_s * np.float64(k_s[i]) - sign_v * np.float64(k_v[i]) + shift
        g = gradient[i] + step * (signs[i] * difference)
        gradient[i] = g
        if role[i] == IDLE:
            lowest_idle = min(lowest_idle, g)
        elif role[i] > IDLE:
            lowest_working = min(lowest_working, g)
        if role[i] == SUPPORT:
            highest = max(highest, g)
    return lowest_idle, lowest_working, highest


@njit(cache=True, nogil=True)
def locate(gradient, role, kind, extreme, start, stop):  # type: ignore[no-untyped-def]
    """The first index from start to stop behind an extreme (kind 0 idle, 1 working, 2 support)."""
    for i in range(start, stop):
        if gradient[i] == extreme:
            of_kind = role[i] == IDLE if kind == _IDLE else role[i] >= kind
            if of_kind:
                return i
    return -1


@intrinsic
def _sweep_lanes(typing_context, arrays, factors, start, stop, lanes):  # type: ignore[no-untyped-def]
    """`sweep` in LLVM vectors; the extremes by lane.

    LLVM does not vectorise a loop with three masked minima: it would run at an eighth of the speed.
    """

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vectors = Vectors(context, builder)
        data = vectors.data_of_each(signature.args[0], arguments[0])
        factors = cgutils.unpack_tuple(builder, arguments[1])
        step, sign_s, sign_v, shift = (vectors.splat(factor) for factor in factors)
        lowest, highest = vectors.constant(np.inf), vectors.constant(-np.inf)

        def body(i: Any, best: list) -> list:
            g, role, sign, k_s, k_v = (vectors.load_double(array, i) for array in data)
            g = g + step * (sign * (sign_s * k_s - sign_v * k_v + shift))
            vectors.store(g, data[0], i)
            idle, support = vectors.constant(IDLE), vectors.constant(SUPPORT)
            return [
                best[_IDLE].minimum(role.compare("==", idle).select(g, lowest)),
                best[_WORKING].minimum(role.compare(">", idle).select(g, lowest)),
                best[_SUPPORT].maximum(role.compare("==", support).select(g, highest)),
            ]

        start, stop = arguments[2:4]
        found = each_vector(vectors, builder, start, stop, [lowest, lowest, highest], body)
        out = vectors.data(signature.args[4], arguments[4])
        for row, best in enumerate(found):
            vectors.store(best, out, start.type(row * WIDTH))
        return context.get_dummy_value()

    return types.void(arrays, factors, types.intp, types.intp, lanes), emit
