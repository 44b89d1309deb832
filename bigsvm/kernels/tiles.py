"""Tiles of kernel values, 6 or 12 rows against 16 patterns, as LLVM vector code.

LLVM's loop vectoriser neither keeps 6 x 16 sums in registers nor vectorises short loops over the
lanes, so that these are written out here.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

from bigsvm.kernels.simd import ArrayData, element_at

LANES = 16
# The number of rows whose sums fit in the vector registers; no value depends on it.
PACK = 12 if get_host_cpu_features().get("avx512f") else 6
# Features are summed in segments of this length, whose sums are then added: a single float32 sum
# over hundreds of features would lose a digit.
SEGMENT = 64


def _intrinsic_call(builder: Any, name: str, kind: ir.Type, arguments: list) -> Any:
    signature = ir.FunctionType(kind, [kind] * len(arguments))
    function = cgutils.get_or_insert_function(builder.module, signature, name)
    return builder.call(function, arguments)


def fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once."""
    width = "f32" if isinstance(c.type.element, ir.FloatType) else "f64"
    return _intrinsic_call(builder, f"llvm.fma.v{LANES}{width}", c.type, [a, b, c])


def everywhere(builder: Any, value: Any, vector: ir.VectorType) -> Any:
    """A vector that holds `value` in every lane."""
    undefined = ir.Constant(vector, ir.Undefined)
    lane = builder.insert_element(undefined, value, ir.IntType(64)(0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(lane, undefined, zeros)


def _disable_unrolling(builder: Any, branch: Any) -> None:
    """Forbid LLVM to unroll the loop of a branch: its sums would be spilled to memory.

    That halves the speed.
    """
    module = builder.module
    disable = module.add_metadata([ir.MetaDataString(module, "llvm.loop.unroll.disable")])
    loop = module.add_metadata([disable, disable])
    loop.operands = (loop, disable)  # loop metadata must have itself as the first operand
    branch.set_metadata("llvm.loop", loop)


def _for_rows(builder: Any, used: Any, emit: Callable[[int], None]) -> None:
    """Emit code for a pack with one used row, and for any other: a single row costs less alone."""
    with builder.if_else(builder.icmp_signed("==", used, ir.IntType(64)(1))) as (single, all_rows):
        with single:
            emit(1)
        with all_rows:
            emit(PACK)


def _tile_intrinsic(accumulate: Callable, finish: Callable | None = None) -> Callable:
    """Make ``tile(panels, p, packs, g, used, gamma, out)``: out[j * 16 + lane] over all features.

    `accumulate` emits the step for one feature, (builder, sums, x, z) -> new sums, and `finish` the
    kernel values from the final sums, (builder, sums, gamma) -> values.
    """

    @intrinsic
    def tile(typing_context, panels, p, packs, g, used, gamma, out):  # type: ignore[no-untyped-def]
        """The values between panel p and the `used` rows of pack g, as out[j * 16 + lane]."""

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
                return element_at(builder, array.data, offset, single), features

            panel, features = start_of(0, signature.args[0], arguments[1])
            pack, _ = start_of(2, signature.args[2], arguments[3])
            result, _ = start_of(6, signature.args[6])
            gamma = everywhere(builder, arguments[5], vector)

            def values_of(rows: int) -> None:
                nothing = ir.Constant(vector, [0.0] * LANES)
                before = builder.block
                segment = builder.append_basic_block("segment")
                loop = builder.append_basic_block("features")
                segment_end = builder.append_basic_block("segment_end")
                after = builder.append_basic_block("done")
                builder.branch(segment)

                builder.position_at_end(segment)
                first_k = builder.phi(integer)
                first_k.add_incoming(integer(0), before)
                totals = [builder.phi(vector) for _ in range(rows)]
                whole = builder.add(first_k, integer(SEGMENT))
                is_last = builder.icmp_signed(">=", whole, features)
                last_k = builder.select(is_last, features, whole)
                builder.branch(loop)

                builder.position_at_end(loop)
                k = builder.phi(integer)
                k.add_incoming(first_k, segment)
                sums = [builder.phi(vector) for _ in range(rows)]
                x = builder.load(element_at(builder, panel, k, vector), align=4, typ=vector)
                first_z = builder.mul(k, integer(PACK))
                updated = []
                for j, total in enumerate(sums):
                    total.add_incoming(nothing, segment)
                    place = element_at(builder, pack, builder.add(first_z, integer(j)), single)
                    z = builder.load(place, typ=single)
                    updated.append(accumulate(builder, total, x, everywhere(builder, z, vector)))
                    total.add_incoming(updated[j], loop)
                next_k = builder.add(k, integer(1))
                k.add_incoming(next_k, loop)
                again = builder.icmp_signed("<", next_k, last_k)
                _disable_unrolling(builder, builder.cbranch(again, loop, segment_end))

                builder.position_at_end(segment_end)
                values = []
                for total, of_segment in zip(totals, updated, strict=True):
                    total.add_incoming(nothing, before)
                    values.append(builder.fadd(total, of_segment))
                    total.add_incoming(values[-1], segment_end)
                first_k.add_incoming(last_k, segment_end)
                builder.cbranch(is_last, after, segment)

                builder.position_at_end(after)
                if finish:
                    values = [finish(builder, total, gamma) for total in values]
                for j, total in enumerate(values):
                    builder.store(total, element_at(builder, result, integer(j), vector), align=4)

            _for_rows(builder, arguments[4], values_of)
            return context.get_dummy_value()

        index = types.intp
        return types.void(panels, index, packs, index, index, types.float32, out), emit

    return tile


def _add_square(builder: Any, total: Any, x: Any, z: Any) -> Any:
    difference = builder.fsub(x, z)
    return fma(builder, difference, difference, total)


def _add_absolute(builder: Any, total: Any, x: Any, z: Any) -> Any:
    difference = builder.fsub(x, z)
    return builder.fadd(
        total, _intrinsic_call(builder, f"llvm.fabs.v{LANES}f32", total.type, [difference])
    )


def _add_product(builder: Any, total: Any, x: Any, z: Any) -> Any:
    return fma(builder, x, z, total)


# 2^r on [-1/2, 1/2] by its Taylor series, ln(2)^k / k!: relative error below 2e-7 before rounding.
_SERIES = [np.log(2) ** k / math.factorial(k) for k in range(7)]
_SMALLEST = 126.0


def negative_power_of_two(builder: Any, distance: Any, gamma: Any) -> Any:
    """2^(-gamma distance) in float32, at least 2^-126."""
    single = distance.type
    whole_number = ir.VectorType(ir.IntType(32), LANES)

    def constant(value: float) -> Any:
        return ir.Constant(single, [float(np.float32(value))] * LANES)

    scaled = builder.fmul(distance, gamma)
    too_far = builder.fcmp_ordered("<", constant(_SMALLEST), scaled)
    scaled = builder.select(too_far, constant(_SMALLEST), scaled)
    whole = _intrinsic_call(builder, f"llvm.rint.v{LANES}f32", single, [scaled])
    r = builder.fsub(whole, scaled)
    power = constant(_SERIES[-1])
    for coefficient in reversed(_SERIES[:-1]):
        power = fma(builder, power, r, constant(coefficient))
    exponent = builder.sub(
        ir.Constant(whole_number, [127] * LANES), builder.fptosi(whole, whole_number)
    )
    exponent = builder.shl(exponent, ir.Constant(whole_number, [23] * LANES))
    return builder.fmul(power, builder.bitcast(exponent, single))


rbf_values = _tile_intrinsic(_add_square, negative_power_of_two)
laplacian_values = _tile_intrinsic(_add_absolute, negative_power_of_two)
dot_products = _tile_intrinsic(_add_product)


def place_in(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    """The pointer to the flat position `index` of an array."""
    data = ArrayData.of(context, builder, kind, array)
    return element_at(builder, data.start, index, data.element)


def _must_be_contiguous(array: Any) -> None:
    if array.layout != "C":
        raise TypingError("tiles are read from and written to arrays in C order")


TRANSPOSED = 4  # features at a time


@intrinsic
def transpose(typing_context, x, i, k, panels, position):  # type: ignore[no-untyped-def]
    """Write features k to k + 4 of rows i to i + 16 to the flat `position` of `panels`.

    Three times as fast as copying value by value.
    """
    _must_be_contiguous(x)
    _must_be_contiguous(panels)

    def emit(context, builder, signature, args):  # type: ignore[no-untyped-def]
        integer, four = ir.IntType(64), ir.VectorType(ir.FloatType(), TRANSPOSED)
        shape = context.make_array(signature.args[0])(context, builder, args[0]).shape
        features = builder.extract_value(shape, 1)

        def row(lane):  # type: ignore[no-untyped-def]
            first = builder.mul(builder.add(args[1], integer(lane)), features)
            index = builder.add(first, args[2])
            place = place_in(context, builder, signature.args[0], args[0], index)
            return builder.load(place, align=4, typ=four)

        def shuffled(a, b, order):  # type: ignore[no-untyped-def]
            kind = ir.VectorType(ir.IntType(32), len(order))
            return builder.shuffle_vector(a, b, ir.Constant(kind, order))

        loaded = [row(lane) for lane in range(LANES)]  # all before the first is stored
        transposed = {}
        for half in range(0, LANES, 8):
            # Rows r and r + 4 in one vector, so that both halves are transposed 4 x 4 at once.
            sides = zip(loaded[half : half + 4], loaded[half + 4 : half + 8], strict=True)
            a, b, c, d = (shuffled(*pair, [0, 1, 2, 3, 4, 5, 6, 7]) for pair in sides)
            for k, pairs in ((0, [0, 8, 1, 9, 4, 12, 5, 13]), (2, [2, 10, 3, 11, 6, 14, 7, 15])):
                ab, cd = shuffled(a, b, pairs), shuffled(c, d, pairs)
                transposed[k, half] = shuffled(ab, cd, [0, 1, 8, 9, 4, 5, 12, 13])
                transposed[k + 1, half] = shuffled(ab, cd, [2, 3, 10, 11, 6, 7, 14, 15])
        for (k, half), lanes in sorted(transposed.items(), key=lambda item: item[0]):
            index = builder.add(args[4], integer(k * LANES + half))
            place = place_in(context, builder, signature.args[3], args[3], index)
            builder.store(lanes, place, align=4)
        return context.get_dummy_value()

    return types.void(x, types.intp, types.intp, panels, types.intp), emit


@intrinsic
def store_lanes(typing_context, values, j, out, position):  # type: ignore[no-untyped-def]
    """Copy values[16 j :][:16] to the flat `position` of `out`, as one vector."""
    _must_be_contiguous(out)

    def emit(context, builder, signature, args):  # type: ignore[no-untyped-def]
        index = builder.mul(args[1], ir.IntType(64)(LANES))
        source = place_in(context, builder, signature.args[0], args[0], index)
        target = place_in(context, builder, signature.args[2], args[2], args[3])
        lanes = builder.load(source, align=4, typ=ir.VectorType(ir.FloatType(), LANES))
        builder.store(lanes, target, align=4)
        return context.get_dummy_value()

    return types.void(values, types.intp, out, types.intp), emit


@intrinsic
def add_products(typing_context, values, coef, g, used, c, out, position):  # type: ignore[no-untyped-def]
    """Add sum_j coef[PACK g + j, c] * values[16 j :][:16] to `out`, 16 entries from `position` on.

    In float64, in the order of the rows j of the tile. A coefficient of 0 adds nothing, even if the
    value is infinite.
    """

    def emit(context, builder, signature, args):  # type: ignore[no-untyped-def]
        integer, double = ir.IntType(64), ir.DoubleType()
        narrow, wide = ir.VectorType(ir.FloatType(), LANES), ir.VectorType(double, LANES)
        factors = context.make_array(signature.args[1])(context, builder, args[1])
        sums = builder.extract_value(factors.shape, 1)
        target = place_in(context, builder, signature.args[5], args[5], args[6])

        def add(rows: int) -> None:
            total = builder.load(target, align=8, typ=wide)
            for j in range(rows):
                row = builder.add(builder.mul(args[2], integer(PACK)), integer(j))
                place = builder.add(builder.mul(row, sums), args[4])
                factor = builder.load(element_at(builder, factors.data, place, double), typ=double)
                first = integer(j * LANES)
                source = place_in(context, builder, signature.args[0], args[0], first)
                value = builder.fpext(builder.load(source, align=4, typ=narrow), wide)
                added = fma(builder, everywhere(builder, factor, wide), value, total)
                counts = builder.fcmp_unordered("!=", factor, double(0.0))
                total = builder.select(counts, added, total)
            builder.store(total, target, align=8)

        _for_rows(builder, args[3], add)
        return context.get_dummy_value()

    _must_be_contiguous(coef)
    _must_be_contiguous(out)
    index = types.intp
    return types.void(values, coef, index, index, index, out, index), emit


@intrinsic
def fused(typing_context, a, b, c):  # type: ignore[no-untyped-def]
    """a * b + c, rounded once (float32 or float64 by the type of c)."""
    return c(c, c, c), lambda context, builder, signature, args: builder.fma(*args)


@intrinsic
def take(typing_context, taken, count):  # type: ignore[no-untyped-def]
    """Atomically add `count` to taken[0], and return its previous value."""

    def emit(context, builder, signature, args):  # type: ignore[no-untyped-def]
        counter = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.atomic_rmw("add", counter, args[1], "monotonic")

    return types.int64(taken, types.int64), emit
