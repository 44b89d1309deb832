"""Kernel values, computed in panels.

Sixteen patterns stand side by side, feature by feature, in a *panel* of shape (d, 16); a *pack*
holds six rows in the same way, shape (d, 6). One tile, the 6 x 16 kernel values between a pack
and a panel, is computed in vector registers. Distances are sums of squared (or absolute)
differences, so nothing cancels, however far out the patterns lie.

Every value is made by the same sequence of correctly rounded operations (fused multiply-adds asked
for explicitly, never left to the compiler), one lane to a pair. So it does not depend on the chunk,
the lane, the pack or the thread that computes it: the ground on which all "same bits" promises
stand.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import get_num_threads, njit, prange, types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

LANES = 16
PACK = 6
NAMES = ("rbf", "laplacian", "linear", "poly")
_RBF, _LAPLACIAN, _LINEAR, _POLY = range(4)

# Rows swept over the data at once: their packs stay in the second-level cache.
_PACKED_BYTES = 256 * 1024
# Panels worked on in a row by one thread; those that one pack meets so stay in that cache too.
_RUN = 16
_RUN_BYTES = 128 * 1024


@dataclass(frozen=True)
class Kernel:
    """A kernel function of two patterns.

    Parameters
    ----------
    name : {"rbf", "laplacian", "linear", "poly"}
        ``exp(-gamma |x - z|^2)``, ``exp(-gamma |x - z|_1)``, ``x.z``,
        ``(gamma x.z + coef0)^degree``.
    gamma, coef0, degree
        The parameters of those formulas, where they occur.
    """

    name: str
    gamma: float = 1.0
    coef0: float = 0.0
    degree: int = 3

    @property
    def parameters(self) -> tuple[int, np.float32, np.float32, int]:
        """What the compiled code takes: the exponentials are powers of two there."""
        gamma = self.gamma / np.log(2) if self.name in ("rbf", "laplacian") else self.gamma
        return NAMES.index(self.name), np.float32(gamma), np.float32(self.coef0), self.degree


def panels_of(x: np.ndarray) -> np.ndarray:
    """Lay rows (n, d) out as panels (n / 16 rounded up, d, 16), the last one filled with zeros."""
    panels = np.zeros((-(-len(x) // LANES), x.shape[1], LANES), np.float32)
    interleave(np.ascontiguousarray(x, np.float32), panels)
    return panels


class Block(NamedTuple):
    """Patterns `start` to `stop` of a data set, laid out for the kernels."""

    start: int
    stop: int
    panels: np.ndarray


def block_of(x: np.ndarray, start: int = 0) -> Block:
    """Lay out rows (n, d) that begin at pattern `start`."""
    return Block(start, start + len(x), panels_of(x))


def columns(
    kernel: Kernel, block: Block, rows: np.ndarray, out: np.ndarray, slots: np.ndarray
) -> None:
    """Write k(row j, pattern i) to ``out[slots[j], i]`` for the patterns i of the block."""
    start, stop, panels = block
    workers = get_num_threads()
    for tile in _row_tiles(rows):
        packs = _packs_of(rows[tile])
        _columns(panels, packs, *kernel.parameters, out, start, stop, slots[tile], workers)


def products(
    kernel: Kernel, block: Block, rows: np.ndarray, coef: np.ndarray, out: np.ndarray
) -> None:
    """Add sum_j coef[j, c] k(row j, pattern i) to ``out[c, i]`` for the patterns i of the block.

    The sum runs over the rows in their order, in float64, past those with a coefficient of 0; so it
    is the same bits whatever other sums there are. The kernel values are never stored. For
    the linear kernel the rows are summed first: one product a pattern, however many rows.
    """
    start, stop, panels = block
    if kernel.name == "linear":
        _linear_products(panels, _weights(rows, coef), out, start, stop)
        return
    workers = get_num_threads()
    for tile in _row_tiles(rows):
        packs = _packs_of(rows[tile])
        padded = np.zeros((len(packs) * PACK, coef.shape[1]))
        padded[: len(coef[tile])] = coef[tile]
        _products(panels, packs, *kernel.parameters, padded, out, start, stop, workers)


def _row_tiles(rows: np.ndarray) -> list[slice]:
    size = max(4 * PACK, _PACKED_BYTES // (4 * rows.shape[1]) // PACK * PACK)
    return [slice(start, start + size) for start in range(0, len(rows), size)]


def _packs_of(rows: np.ndarray) -> np.ndarray:
    packs = np.zeros((-(-len(rows) // PACK), rows.shape[1], PACK), np.float32)
    interleave(np.ascontiguousarray(rows, np.float32), packs)
    return packs


@njit(cache=True, nogil=True)
def interleave(x, groups):  # type: ignore[no-untyped-def]
    """Lay rows (n, d) out in groups (n / width rounded up, d, width)."""
    width = groups.shape[2]
    for i in range(x.shape[0]):
        group, lane = divmod(i, width)
        for k in range(x.shape[1]):
            groups[group, k, lane] = x[i, k]


def _intrinsic_call(builder: Any, name: str, kind: ir.Type, arguments: list) -> Any:
    signature = ir.FunctionType(kind, [kind] * len(arguments))
    function = cgutils.get_or_insert_function(builder.module, signature, name)
    return builder.call(function, arguments)


def _everywhere(builder: Any, value: Any, vector: ir.VectorType) -> Any:
    """A vector that holds `value` in every lane."""
    undefined = ir.Constant(vector, ir.Undefined)
    lane = builder.insert_element(undefined, value, ir.IntType(64)(0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(lane, undefined, zeros)


def _tile_intrinsic(accumulate: Callable[[Any, Any, Any, Any], Any]) -> Callable:
    """Make ``tile(panels, p, packs, g, out)``: out[j * 16 + lane] over all features.

    Written as LLVM vectors because the loop vectoriser will not keep 6 x 16 sums in registers by
    itself; `accumulate` emits the step for one feature: (builder, sums, x, z) -> new sums.
    """

    @intrinsic
    def tile(typing_context, panels, p, packs, g, out):  # type: ignore[no-untyped-def]
        def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            integer, single = ir.IntType(64), ir.FloatType()
            vector = ir.VectorType(single, LANES)

            def start_of(position, array_type, index=None):  # type: ignore[no-untyped-def]
                array = context.make_array(array_type)(context, builder, arguments[position])
                if index is None:
                    return array.data, None
                features = builder.extract_value(array.shape, 1)
                width = builder.extract_value(array.shape, 2)
                offset = builder.mul(index, builder.mul(features, width))
                return builder.gep(array.data, [offset]), features

            panel, features = start_of(0, signature.args[0], arguments[1])
            pack, _ = start_of(2, signature.args[2], arguments[3])
            result, _ = start_of(4, signature.args[4])
            panel = builder.bitcast(panel, vector.as_pointer())
            result = builder.bitcast(result, vector.as_pointer())
            before = builder.block
            loop = builder.append_basic_block("features")
            after = builder.append_basic_block("done")
            builder.branch(loop)

            builder.position_at_end(loop)
            k = builder.phi(integer)
            k.add_incoming(integer(0), before)
            sums = [builder.phi(vector) for _ in range(PACK)]
            x = builder.load(builder.gep(panel, [k]), align=4)
            first_z = builder.mul(k, integer(PACK))
            updated = []
            for j, total in enumerate(sums):
                total.add_incoming(ir.Constant(vector, [0.0] * LANES), before)
                z = builder.load(builder.gep(pack, [builder.add(first_z, integer(j))]))
                updated.append(accumulate(builder, total, x, _everywhere(builder, z, vector)))
                total.add_incoming(updated[j], loop)
            next_k = builder.add(k, integer(1))
            k.add_incoming(next_k, loop)
            builder.cbranch(builder.icmp_signed("<", next_k, features), loop, after)

            builder.position_at_end(after)
            for j, total in enumerate(updated):
                builder.store(total, builder.gep(result, [integer(j)]), align=4)
            return context.get_dummy_value()

        return types.void(panels, types.intp, packs, types.intp, out), emit

    return tile


def _add_square(builder: Any, total: Any, x: Any, z: Any) -> Any:
    difference = builder.fsub(x, z)
    return _intrinsic_call(
        builder, f"llvm.fma.v{LANES}f32", total.type, [difference, difference, total]
    )


def _add_absolute(builder: Any, total: Any, x: Any, z: Any) -> Any:
    difference = builder.fsub(x, z)
    return builder.fadd(
        total, _intrinsic_call(builder, f"llvm.fabs.v{LANES}f32", total.type, [difference])
    )


def _add_product(builder: Any, total: Any, x: Any, z: Any) -> Any:
    return _intrinsic_call(builder, f"llvm.fma.v{LANES}f32", total.type, [x, z, total])


_squared_distances = _tile_intrinsic(_add_square)
_absolute_distances = _tile_intrinsic(_add_absolute)
_dot_products = _tile_intrinsic(_add_product)


@intrinsic
def _fma(typing_context, a, b, c):  # type: ignore[no-untyped-def]
    """a * b + c, rounded once (float32 or float64 by the type of c)."""
    return c(c, c, c), lambda context, builder, signature, args: builder.fma(*args)


@intrinsic
def _nearest(typing_context, a):  # type: ignore[no-untyped-def]
    """The nearest whole number, as float32."""

    def emit(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return _intrinsic_call(builder, "llvm.rint.f32", ir.FloatType(), list(args))

    return types.float32(types.float32), emit


@intrinsic
def _float_of_bits(typing_context, bits):  # type: ignore[no-untyped-def]
    return types.float32(types.int32), lambda context, builder, signature, args: builder.bitcast(
        args[0], ir.FloatType()
    )


def _vector_at(context: Any, builder: Any, kind: Any, value: Any, index: Any, element: Any) -> Any:
    """Where the 16 lanes from flat position `index` of an array lie."""
    data = context.make_array(kind)(context, builder, value).data
    return builder.bitcast(builder.gep(data, [index]), ir.VectorType(element, LANES).as_pointer())


@intrinsic
def _store_lanes(typing_context, values, j, out, position):  # type: ignore[no-untyped-def]
    """Copy values[16 j :][:16] to the flat `position` of `out`; plain loops copied one by one."""
    if out.layout != "C":
        raise TypingError("columns are written to an array whose rows lie one after the other")

    def emit(context, builder, signature, args):  # type: ignore[no-untyped-def]
        index = builder.mul(args[1], ir.IntType(64)(LANES))
        single = ir.FloatType()
        source = _vector_at(context, builder, signature.args[0], args[0], index, single)
        target = _vector_at(context, builder, signature.args[2], args[2], args[3], single)
        builder.store(builder.load(source, align=4), target, align=4)
        return context.get_dummy_value()

    return types.void(values, types.intp, out, types.intp), emit


@intrinsic
def _add_lanes(typing_context, values, j, factor, sums, c):  # type: ignore[no-untyped-def]
    """Add factor * values[16 j :][:16] to sums[c], in float64."""

    def emit(context, builder, signature, args):  # type: ignore[no-untyped-def]
        width, double = ir.IntType(64)(LANES), ir.DoubleType()
        vector = ir.VectorType(double, LANES)
        index = builder.mul(args[1], width)
        source = _vector_at(context, builder, signature.args[0], args[0], index, ir.FloatType())
        index = builder.mul(args[4], width)
        target = _vector_at(context, builder, signature.args[3], args[3], index, double)
        value = builder.fpext(builder.load(source, align=4), vector)
        factor = _everywhere(builder, args[2], vector)
        total = [factor, value, builder.load(target, align=8)]
        total = _intrinsic_call(builder, f"llvm.fma.v{LANES}f64", vector, total)
        builder.store(total, target, align=8)
        return context.get_dummy_value()

    return types.void(values, types.intp, types.float64, sums, types.intp), emit


@intrinsic
def _take(typing_context, taken, count):  # type: ignore[no-untyped-def]
    """taken[0], which goes up by `count`; no two threads get the same."""

    def emit(context, builder, signature, args):  # type: ignore[no-untyped-def]
        counter = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.atomic_rmw("add", counter, args[1], "monotonic")

    return types.int64(taken, types.int64), emit


# 2^r on [-1/2, 1/2] by its series, ln(2)^k / k!: relative error below 2e-7 before rounding.
_P1 = np.float32(0.693147180559945)
_P2 = np.float32(0.240226506959101)
_P3 = np.float32(0.0555041086648216)
_P4 = np.float32(0.00961812910762848)
_P5 = np.float32(0.00133335581464284)
_P6 = np.float32(0.000154035303933816)
_ONE = np.float32(1.0)
_SMALLEST = np.float32(126.0)


@njit(inline="always")
def _two_to_minus(distance, gamma):  # type: ignore[no-untyped-def]
    """2^(-gamma distance) in float32, at least 2^-126; no branch, so that it vectorises."""
    distance = min(distance * gamma, _SMALLEST)
    whole = _nearest(distance)
    r = whole - distance
    p = _fma(_P6, r, _P5)
    p = _fma(p, r, _P4)
    p = _fma(p, r, _P3)
    p = _fma(p, r, _P2)
    p = _fma(p, r, _P1)
    p = _fma(p, r, _ONE)
    return p * _float_of_bits((np.int32(127) - np.int32(whole)) << np.int32(23))


@njit(inline="always")
def _tile(panels, p, packs, g, kind, gamma, coef0, degree, values):  # type: ignore[no-untyped-def]
    """The kernel values between pack g and panel p, as values[j * 16 + lane]."""
    # Not `kind in (...)`: that costs the exponential loop its vector instructions.
    if kind == _RBF or kind == _LAPLACIAN:  # noqa: SIM109
        if kind == _RBF:
            _squared_distances(panels, p, packs, g, values)
        else:
            _absolute_distances(panels, p, packs, g, values)
        for i in range(PACK * LANES):
            values[i] = _two_to_minus(values[i], gamma)
    else:
        _dot_products(panels, p, packs, g, values)
        if kind == _POLY:
            for i in range(PACK * LANES):
                base = _fma(gamma, values[i], coef0)
                power = _ONE
                for _ in range(degree):
                    power *= base
                values[i] = power


# Threads take the next run of panels whenever they are done with one: dealt out beforehand, all
# would wait for the thread that shares its core with whoever reads the next chunk.


@njit(cache=True, nogil=True, parallel=True)
def _columns(  # type: ignore[no-untyped-def]
    panels, packs, kind, gamma, coef0, degree, out, start, stop, slots, workers
):
    # A pack meets a whole run of panels before the next one, so that each column is written in
    # long stretches: 256 columns touched 64 bytes at a time would cost more than the kernel.
    length = max(1, min(_RUN, _RUN_BYTES // (4 * LANES * panels.shape[1])))
    taken = np.zeros(1, np.int64)
    for _ in prange(workers):
        values = np.empty(PACK * LANES, np.float32)
        begin = _take(taken, length)
        while begin < panels.shape[0]:
            for g in range(packs.shape[0]):
                used = min(PACK, slots.shape[0] - g * PACK)
                for p in range(begin, min(begin + length, panels.shape[0])):
                    _tile(panels, p, packs, g, kind, gamma, coef0, degree, values)
                    first = start + p * LANES
                    if first + LANES <= stop:
                        for j in range(used):
                            position = slots[g * PACK + j] * out.shape[1] + first
                            _store_lanes(values, j, out, position)
                    else:
                        for j in range(used):
                            for lane in range(stop - first):
                                out[slots[g * PACK + j], first + lane] = values[j * LANES + lane]
            begin = _take(taken, length)


@njit(cache=True, nogil=True, parallel=True)
def _products(  # type: ignore[no-untyped-def]
    panels, packs, kind, gamma, coef0, degree, coef, out, start, stop, workers
):
    outputs = coef.shape[1]
    taken = np.zeros(1, np.int64)
    for _ in prange(workers):
        values = np.empty(PACK * LANES, np.float32)
        sums = np.zeros((outputs, LANES))
        begin = _take(taken, _RUN)
        while begin < panels.shape[0]:
            for p in range(begin, min(begin + _RUN, panels.shape[0])):
                first = start + p * LANES
                lanes = min(LANES, stop - first)
                for c in range(outputs):
                    for lane in range(lanes):
                        sums[c, lane] = out[c, first + lane]
                for g in range(packs.shape[0]):
                    _tile(panels, p, packs, g, kind, gamma, coef0, degree, values)
                    for c in range(outputs):
                        for j in range(PACK):
                            # Of many classes most rows concern a few: the others get nothing, even
                            # where the value is infinite.
                            if coef[g * PACK + j, c] != 0.0:
                                _add_lanes(values, j, coef[g * PACK + j, c], sums, c)
                for c in range(outputs):
                    for lane in range(lanes):
                        out[c, first + lane] = sums[c, lane]
            begin = _take(taken, _RUN)


@njit(cache=True, nogil=True)
def _weights(rows, coef):  # type: ignore[no-untyped-def]
    """The weight vectors sum_j coef[j, c] row_j, added up in the order of the rows."""
    weights = np.zeros((coef.shape[1], rows.shape[1]))
    for j in range(rows.shape[0]):
        for c in range(coef.shape[1]):
            for k in range(rows.shape[1]):
                weights[c, k] = _fma(coef[j, c], rows[j, k], weights[c, k])
    return weights


@njit(cache=True, nogil=True, parallel=True)
def _linear_products(panels, weights, out, start, stop):  # type: ignore[no-untyped-def]
    for p in prange(panels.shape[0]):
        sums = np.zeros(LANES)
        for c in range(weights.shape[0]):
            sums[:] = 0.0
            for k in range(panels.shape[1]):
                for lane in range(LANES):
                    sums[lane] = _fma(weights[c, k], panels[p, k, lane], sums[lane])
            first = start + p * LANES
            for lane in range(min(LANES, stop - first)):
                out[c, first + lane] += sums[lane]


def warm_up(kernel: Kernel) -> None:
    """Compile or load what training needs, so that its memory is there before it is counted."""
    rows = np.zeros((1, 1), np.float32)
    columns(kernel, block_of(rows), rows, np.empty((1, 1), np.float32), np.zeros(1, np.int64))
    products(kernel, block_of(rows), rows, np.zeros((1, 1)), np.zeros((1, 1)))
