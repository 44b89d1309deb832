"""The three nodes of a Frank-Wolfe step, found in the same sweep that updates the gradient."""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import prange, types
from numba.extending import intrinsic

from bigsvm.core.compiled import njit, threads_lost
from bigsvm.kernels.tiles import everywhere
from bigsvm.solvers.state import EXCLUDED, IDLE, SUPPORT

_LANES = 8
_BLOCK = 2048
# With fewer patterns, waiting for the other threads costs more than they save.
WORTH_THREADS = 32_768


@njit(cache=True, nogil=True)
def find_nodes(gradient, role):  # type: ignore[no-untyped-def]
    """Where the gradient is extreme: the lowest index among equals, -1 where there is none.

    A pattern with a role below IDLE takes no part.

    Returns
    -------
    idle : int
        Lowest derivative among the idle patterns: the next to join, if it is 0 or less.
    toward : int
        Lowest derivative in the working set.
    away : int
        Highest derivative in the support.
    """
    idle = toward = away = -1
    for i in range(len(gradient)):
        g = gradient[i]
        if role[i] == IDLE:
            if idle < 0 or g < gradient[idle]:
                idle = i
        elif role[i] > IDLE and (toward < 0 or g < gradient[toward]):
            toward = i
        if role[i] == SUPPORT and (away < 0 or g > gradient[away]):
            away = i
    return idle, toward, away


@njit(cache=True, nogil=True)
def gap_and_joining(gradient, role):  # type: ignore[no-untyped-def]
    """The gap between the nodes of the next step, and whether an idle pattern waits to join.

    One that does counts as if it had. NaN where a derivative is one. Compiled, because each mask of
    a numpy expression is as long as the data.
    """
    lowest, highest, someone_joins = np.inf, -np.inf, False
    for i in range(len(gradient)):
        if role[i] < IDLE:
            continue
        g = gradient[i]
        if np.isnan(g):
            return np.nan, someone_joins
        joins = role[i] == IDLE and g <= 0
        someone_joins |= joins
        if joins or role[i] > IDLE:
            lowest = min(lowest, g)
        if role[i] == SUPPORT:
            highest = max(highest, g)
    return highest - lowest, someone_joins


@njit(cache=True, nogil=True)
def update_gradient(  # type: ignore[no-untyped-def]
    gradient, role, signs, C, intercept, k_s, k_v, s, v, step
):
    """Add ``step (Q_s - Q_v)`` to the gradient and find its new nodes, in one sweep.

    `k_s` and `k_v` are kernel columns: without signs, intercept and the diagonal 1/C of Q. Returns
    the nodes as `find_nodes` does.
    """
    n = gradient.shape[0]
    held = hold_out(gradient, role, signs, C, intercept, k_s, k_v, s, v, step)
    factors = step, np.float64(signs[s]), np.float64(signs[v]), intercept
    extremes = np.empty((3, -(-n // _BLOCK)))
    if n < WORTH_THREADS or threads_lost():
        _sweep_all(gradient, role, signs, k_s, k_v, factors, extremes)
    else:
        _sweep_all_in_parallel(gradient, role, signs, k_s, k_v, factors, extremes)
    found = np.full(3, -1)
    for kind in range(3):
        block = np.argmax(extremes[2]) if kind == 2 else np.argmin(extremes[kind])
        start, stop = block * _BLOCK, min((block + 1) * _BLOCK, n)
        found[kind] = locate(gradient, role, kind, extremes[kind, block], start, stop)
    return put_back(gradient, role, s, v, held, found[0], found[1], found[2])


@njit(cache=True, nogil=True)
def _sweep_all(gradient, role, signs, k_s, k_v, factors, extremes):  # type: ignore[no-untyped-def]
    for block in range(extremes.shape[1]):
        _sweep_block(gradient, role, signs, k_s, k_v, factors, extremes, block)


@njit(cache=True, nogil=True, parallel=True)
def _sweep_all_in_parallel(  # type: ignore[no-untyped-def]
    gradient, role, signs, k_s, k_v, factors, extremes
):
    for block in prange(extremes.shape[1]):
        _sweep_block(gradient, role, signs, k_s, k_v, factors, extremes, block)


@njit(cache=True, nogil=True)
def _sweep_block(  # type: ignore[no-untyped-def]
    gradient, role, signs, k_s, k_v, factors, extremes, block
):
    start, stop = block * _BLOCK, min((block + 1) * _BLOCK, gradient.shape[0])
    low_idle, low_working, high_support = sweep(
        gradient, role, signs, k_s, k_v, factors, start, stop
    )
    extremes[0, block] = low_idle
    extremes[1, block] = low_working
    extremes[2, block] = high_support


@njit(cache=True, nogil=True)
def three_of_q(signs, C, intercept, k_s, k_v, s, v):  # type: ignore[no-untyped-def]
    """Q_ss, Q_vv and Q_sv."""
    sign_s, sign_v = np.float64(signs[s]), np.float64(signs[v])
    q_ss = sign_s * sign_s * (np.float64(k_s[s]) + intercept) + 1.0 / C[s]
    q_vv = sign_v * sign_v * (np.float64(k_v[v]) + intercept) + 1.0 / C[v]
    return q_ss, q_vv, sign_s * sign_v * (np.float64(k_s[v]) + intercept)


@njit(cache=True, nogil=True)
def hold_out(gradient, role, signs, C, intercept, k_s, k_v, s, v, step):  # type: ignore[no-untyped-def]
    """Take s and v out of the coming sweep; returns their new derivatives and their roles.

    The diagonal of Q concerns them alone. After a full step both have the same derivative but for
    rounding, so that the choice between them hangs on the last bit: it must be the bit of
    step (Q_s - Q_v), computed in this order.
    """
    q_ss, q_vv, q_sv = three_of_q(signs, C, intercept, k_s, k_v, s, v)
    new_s = gradient[s] + step * (q_ss - q_sv)
    new_v = gradient[v] + step * (q_sv - q_vv)
    held = (new_s, new_v, role[s], role[v])
    role[s] = role[v] = EXCLUDED
    return held


@njit(cache=True, nogil=True)
def put_back(gradient, role, s, v, held, idle, toward, away):  # type: ignore[no-untyped-def]
    """Undo `hold_out`, and let s and v compete with the nodes found without them."""
    gradient[s], gradient[v], role[s], role[v] = held
    for i in (s, v):
        if toward < 0 or (gradient[i], i) < (gradient[toward], toward):
            toward = i
        if role[i] == SUPPORT and (away < 0 or (gradient[i], -i) > (gradient[away], -away)):
            away = i
    return idle, toward, away


@njit(cache=True, nogil=True)
def sweep(gradient, role, signs, k_s, k_v, factors, start, stop):  # type: ignore[no-untyped-def]
    """Update the gradient from start to stop; returns the extremes over idle, working, support.

    `factors` are the step, the signs of s and v, and the intercept.
    """
    step, sign_s, sign_v, intercept = factors
    shift = intercept * (sign_s - sign_v)
    whole = start + (stop - start) // _LANES * _LANES
    low_idle, low_working, high_support = np.inf, np.inf, -np.inf
    if whole > start:
        lanes = np.empty((3, _LANES))
        _sweep_lanes(
            gradient, role, signs, k_s, k_v, step, sign_s, sign_v, shift, start, whole, lanes
        )
        low_idle, low_working, high_support = lanes[0].min(), lanes[1].min(), lanes[2].max()
    for i in range(whole, stop):
        difference = sign_s * np.float64(k_s[i]) - sign_v * np.float64(k_v[i]) + shift
        g = gradient[i] + step * (signs[i] * difference)
        gradient[i] = g
        if role[i] == IDLE:
            low_idle = min(low_idle, g)
        elif role[i] > IDLE:
            low_working = min(low_working, g)
        if role[i] == SUPPORT:
            high_support = max(high_support, g)
    return low_idle, low_working, high_support


@njit(cache=True, nogil=True)
def locate(gradient, role, kind, extreme, start, stop):  # type: ignore[no-untyped-def]
    """The first index from start to stop behind an extreme (kind 0 idle, 1 working, 2 support)."""
    for i in range(start, stop):
        if gradient[i] == extreme:
            of_kind = role[i] == IDLE if kind == 0 else role[i] >= kind
            if of_kind:
                return i
    return -1


@intrinsic
def _sweep_lanes(  # type: ignore[no-untyped-def]
    typing_context,
    gradient,
    role,
    signs,
    k_s,
    k_v,
    step,
    sign_s,
    sign_v,
    shift,
    start,
    stop,
    extremes,
):
    """`sweep` from start to stop, eight patterns at a time; the extremes by lane.

    In LLVM vectors, because the loop vectoriser leaves a loop with three masked minima alone: it
    would run at an eighth of the speed.
    """

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        integer, wide = ir.IntType(64), ir.VectorType(ir.DoubleType(), _LANES)

        def vectors(position: int) -> Any:
            array = context.make_array(signature.args[position])
            data = array(context, builder, arguments[position]).data
            return data, ir.VectorType(data.type.pointee, _LANES).as_pointer()

        def load(source: Any, index: Any) -> Any:
            data, kind = source
            address = builder.bitcast(builder.gep(data, [index]), kind)
            return builder.load(address, align=1)

        def constant(value: float) -> Any:
            return ir.Constant(wide, [value] * _LANES)

        arrays = [vectors(position) for position in range(5)]
        factors = [everywhere(builder, value, wide) for value in arguments[5:9]]
        before = builder.block
        loop = builder.append_basic_block("patterns")
        after = builder.append_basic_block("done")
        builder.branch(loop)

        builder.position_at_end(loop)
        i = builder.phi(integer)
        i.add_incoming(arguments[9], before)
        best = [builder.phi(wide) for _ in range(3)]
        for kept, worst in zip(best, (np.inf, np.inf, -np.inf), strict=True):
            kept.add_incoming(constant(worst), before)
        old, roles, own, column_s, column_v = (load(array, i) for array in arrays)
        difference = builder.fsub(
            builder.fmul(factors[1], builder.fpext(column_s, wide)),
            builder.fmul(factors[2], builder.fpext(column_v, wide)),
        )
        difference = builder.fadd(difference, factors[3])
        if own.type != wide:  # plain labels
            own = builder.sitofp(own, wide)
        change = builder.fmul(own, difference)
        new = builder.fadd(old, builder.fmul(factors[0], change))
        data, kind = arrays[0]
        builder.store(new, builder.bitcast(builder.gep(data, [i]), kind), align=8)
        of_role = [ir.Constant(roles.type, [value] * _LANES) for value in (IDLE, SUPPORT)]
        masked = [
            builder.select(builder.icmp_signed("==", roles, of_role[0]), new, constant(np.inf)),
            builder.select(builder.icmp_signed(">", roles, of_role[0]), new, constant(np.inf)),
            builder.select(builder.icmp_signed("==", roles, of_role[1]), new, constant(-np.inf)),
        ]
        updated = []
        for kept, candidate, better in zip(best, masked, ("<", "<", ">"), strict=True):
            is_better = builder.fcmp_ordered(better, candidate, kept)
            updated.append(builder.select(is_better, candidate, kept))
            kept.add_incoming(updated[-1], loop)
        following = builder.add(i, integer(_LANES))
        i.add_incoming(following, loop)
        builder.cbranch(builder.icmp_signed("<", following, arguments[10]), loop, after)

        builder.position_at_end(after)
        result = context.make_array(signature.args[11])(context, builder, arguments[11]).data
        result = builder.bitcast(result, wide.as_pointer())
        for row, lanes in enumerate(updated):
            builder.store(lanes, builder.gep(result, [integer(row)]), align=8)
        return context.get_dummy_value()

    double, index = types.float64, types.intp
    arrays = (gradient, role, signs, k_s, k_v)
    return types.void(*arrays, *[double] * 4, index, index, extremes), emit
