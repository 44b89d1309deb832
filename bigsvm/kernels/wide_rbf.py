"""RBF values of wide rows: from products where that is precise, else from differences.

|x - z|^2 = |x|^2 + |z|^2 - 2 x.z takes one instruction a feature, where squares of differences take
two; processors that do both in the same units need twice as long for these. But it cancels: its
error is that of the norms. So a pair is *near* while gamma (|x|^2 + |z|^2) is small, which bounds
the error of the kernel value, and *far* otherwise. That depends on the two rows alone, not on the
tile they meet in, and so does the value.

A norm is the sum that `dot_products` would make of a row with itself, bit for bit: rows that are
equal have the distance 0.
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
    place_in,
    rbf_values,
    two_to_minus,
)

# With fewer features the exponential and the loads weigh as much as the instructions saved.
WIDE = 128
# Near pairs have 2^-(gamma (|x|^2 + |z|^2)) of at least 2^-4. The error of a kernel value is then
# that of differences, below 1e-6; up to 1e-5 where all features are equal, and so all roundings.
_FAR = 4.0


def norms_of(groups: np.ndarray) -> np.ndarray:
    """The squared norms of rows that stand side by side, (groups, width), for (groups, d, width).

    Empty, (0, width), where there are too few features for norms to be of use.
    """
    count, d, width = groups.shape
    norms = np.zeros((count if d >= WIDE else 0, width), np.float32)
    add_squares(groups, norms)
    return norms


@njit(cache=True, nogil=True)
def add_squares(groups, norms):  # type: ignore[no-untyped-def]
    """Add the squares of the rows of each group to their norms."""
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
def wide_rbf_values(  # type: ignore[no-untyped-def]
    panels, p, norms, packs, g, row_norms, used, gamma, values, others
):
    """`rbf_values`, with near pairs from products; `others` is space for as many values."""
    far = count_far(norms, p, row_norms, g, gamma)
    if far > 0:
        rbf_values(panels, p, packs, g, used, gamma, values)
    if far < PACK * LANES:
        dot_products(panels, p, packs, g, used, gamma, others)
        take_near(values, others, norms, p, row_norms, g, gamma)


class _Norms:
    """The sums |x|^2 + |z|^2 of a tile, by row; the arguments are at `first` and after it."""

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
        """The sums, and which of the pairs are far."""
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
    """How many pairs of panel p and pack g are far."""

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
def take_near(typing_context, values, dots, norms, p, row_norms, g, gamma):  # type: ignore[no-untyped-def]
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
            near = two_to_minus(builder, distance, sums.gamma)
            value = builder.select(far, builder.load(place, align=4, typ=sums.vector), near)
            builder.store(value, place, align=4)
        return context.get_dummy_value()

    index = types.intp
    return types.void(values, dots, norms, index, row_norms, index, types.float32), emit
