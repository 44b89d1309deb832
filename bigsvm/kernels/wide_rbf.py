"""RBF values of wide rows: from dot products where these are precise, else from differences.

|x - z|^2 = |x|^2 + |z|^2 - 2 x.z takes one instruction per feature, a squared difference takes two.
But the former cancels: its error is that of the norms. It is therefore used only for a pair that is
*near*, that is, whose gamma (|x|^2 + |z|^2) is small, which bounds the error of the kernel value;
any other pair is *far*. This depends on the two rows alone, not on the tile in which they are
computed, and so does the value.

A norm has the bits of the dot product of a row with itself, so that equal rows have distance 0.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from bigsvm.core.compiled import njit
from bigsvm.kernels.simd import element_at
from bigsvm.kernels.tiles import (
    LANES,
    PACK,
    SEGMENT,
    dot_products,
    everywhere,
    fma,
    fused,
    negative_power_of_two,
    place_in,
    rbf_values,
)

# With fewer features, the exponential and the loads cost as much as the saved instructions.
WIDE = 128
# A pair is near if 2^-(gamma (|x|^2 + |z|^2)) is at least 2^-4. Its kernel value then has the error
# of differences, below 1e-6; up to 1e-5 where all features, and so all roundings, are equal.
_FAR = 4.0


def norms_of(groups: np.ndarray) -> np.ndarray:
    """The squared norms (groups, width) of the rows in panels or packs (groups, d, width).

    Empty, (0, width), if there are too few features for norms to be of use.
    """
    count, d, width = groups.shape
    norms = np.zeros((count if d >= WIDE else 0, width), np.float32)
    add_squares(groups, norms)
    return norms


@njit(cache=True, nogil=True)
def add_squares(groups, norms):  # type: ignore[no-untyped-def]
    """Add the squared norms of the rows of each group to `norms`."""
    d, width = groups.shape[1:]
    sums = np.empty(width, np.float32)
    for g in range(norms.shape[0]):
        for begin in range(0, d, SEGMENT):
            sums[:] = 0
            for k in range(begin, min(begin + SEGMENT, d)):
                for lane in range(width):
                    sums[lane] = fused(groups[g, k, lane], groups[g, k, lane], sums[lane])
            for lane in range(width):
                norms[g, lane] += sums[lane]


@njit(inline="always")
def wide_rbf_values(panels, p, packs, g, used, gamma, values, others):  # type: ignore[no-untyped-def]
    """`rbf_values`, with near pairs from dot products; `others` is scratch of that size."""
    far = count_far(panels.norms, p, packs.norms, g, gamma)
    if far > 0:
        rbf_values(panels.data, p, packs.data, g, used, gamma, values)
    if far < PACK * LANES:
        dot_products(panels.data, p, packs.data, g, used, gamma, others)
        replace_near(values, others, panels.norms, p, packs.norms, g, gamma)


class _Norms:
    """The sums |x|^2 + |z|^2 of a tile, row by row.

    Norms, panel, row norms, pack and gamma are the arguments of the intrinsic from `first` on.
    """

    def __init__(self, context: Any, builder: Any, signature: Any, args: Any, first: int) -> None:
        integer = ir.IntType(64)
        self.builder, self.vector = builder, ir.VectorType(ir.FloatType(), LANES)
        panel, pack = args[first + 1], args[first + 3]
        start = builder.mul(panel, integer(LANES))
        place = place_in(context, builder, signature.args[first], args[first], start)
        self._panel = builder.load(place, align=4, typ=self.vector)
        start = builder.mul(pack, integer(PACK))
        self._rows = place_in(context, builder, signature.args[first + 2], args[first + 2], start)
        self.gamma = everywhere(builder, args[first + 4], self.vector)

    def of_row(self, j: int) -> tuple[Any, Any]:
        """The sums of row j, and the mask of its far pairs."""
        builder = self.builder
        single = self.vector.element
        place = element_at(builder, self._rows, ir.IntType(64)(j), single)
        row = builder.load(place, typ=single)
        norms = builder.fadd(self._panel, everywhere(builder, row, self.vector))
        limit = ir.Constant(self.vector, [_FAR] * LANES)
        near = builder.fcmp_ordered("<=", builder.fmul(norms, self.gamma), limit)
        return norms, builder.not_(near)


@intrinsic
def count_far(typing_context, norms, p, row_norms, g, gamma):  # type: ignore[no-untyped-def]
    """The number of far pairs of panel p and pack g."""

    def emit(context, builder, signature, args):  # type: ignore[no-untyped-def]
        sums = _Norms(context, builder, signature, args, 0)
        bits = ir.IntType(LANES)
        ctpop = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(bits, [bits]), f"llvm.ctpop.i{LANES}"
        )
        total = ir.IntType(64)(0)
        for j in range(PACK):
            far = builder.bitcast(sums.of_row(j)[1], bits)
            total = builder.add(total, builder.zext(builder.call(ctpop, [far]), ir.IntType(64)))
        return total

    index = types.intp
    return types.int64(norms, index, row_norms, index, types.float32), emit


@intrinsic
def replace_near(typing_context, values, dots, norms, p, row_norms, g, gamma):  # type: ignore[no-untyped-def]
    """Replace the values of near pairs by those computed from their dot products."""

    def emit(context, builder, signature, args):  # type: ignore[no-untyped-def]
        sums = _Norms(context, builder, signature, args, 2)
        nothing = ir.Constant(sums.vector, [0.0] * LANES)
        minus_two = ir.Constant(sums.vector, [-2.0] * LANES)
        for j in range(PACK):
            first = ir.IntType(64)(j * LANES)
            place, source = (
                place_in(context, builder, signature.args[i], args[i], first) for i in (0, 1)
            )
            norms, far = sums.of_row(j)
            dots = builder.load(source, align=4, typ=sums.vector)
            distance = fma(builder, minus_two, dots, norms)
            distance = builder.select(
                builder.fcmp_ordered("<", distance, nothing), nothing, distance
            )
            near = negative_power_of_two(builder, distance, sums.gamma)
            value = builder.select(far, builder.load(place, align=4, typ=sums.vector), near)
            builder.store(value, place, align=4)
        return context.get_dummy_value()

    index = types.intp
    return types.void(values, dots, norms, index, row_norms, index, types.float32), emit
