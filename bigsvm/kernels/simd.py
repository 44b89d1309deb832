"""LLVM vectors with arithmetic operators, for loops that LLVM does not vectorise by itself.

A loop with masked minima is one of these. With `Vector` its body reads as the formula that it
computes, and `each_vector` emits the loop. Pointers are opaque, as in LLVM: every load, store and
pointer increment names its element type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import cgutils

# float64 values in a vector: one register of AVX-512, two of AVX2, four of NEON.
WIDTH = 8
_INDEX = ir.IntType(64)


def element_at(builder: Any, start: Any, index: Any, element: ir.Type) -> Any:
    """The opaque pointer to element `index` of those that begin at a pointer."""
    place = builder.gep(start, [index], source_etype=element)
    place.type = ir.PointerType()  # llvmlite copies the type of `start`, a typed pointer in numba
    return place


class ArrayData(NamedTuple):
    """The elements of a contiguous numba array."""

    start: Any
    element: ir.Type

    @classmethod
    def of(cls, context: Any, builder: Any, kind: Any, array: Any) -> ArrayData:
        """The elements of an array whose numba type is `kind`."""
        start = context.make_array(kind)(context, builder, array).data
        return cls(start, context.get_data_type(kind.dtype))


class Vector:
    """A vector (or mask) value of LLVM; its operators emit instructions.

    Every operation is rounded separately: nothing is fused or reordered.
    """

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder, self.value = builder, value

    def _binary(self, name: str, other: Vector) -> Vector:
        return Vector(self.builder, getattr(self.builder, name)(self.value, other.value))

    def __add__(self, other: Vector) -> Vector:
        return self._binary("fadd", other)

    def __sub__(self, other: Vector) -> Vector:
        return self._binary("fsub", other)

    def __mul__(self, other: Vector) -> Vector:
        return self._binary("fmul", other)

    def __truediv__(self, other: Vector) -> Vector:
        return self._binary("fdiv", other)

    def __and__(self, other: Vector) -> Vector:
        return self._binary("and_", other)

    def compare(self, relation: str, other: Vector) -> Vector:
        """The mask of ``self relation other``, for floats (ordered) or signed integers."""
        if isinstance(self.value.type.element, ir.IntType):
            return Vector(self.builder, self.builder.icmp_signed(relation, self.value, other.value))
        return Vector(self.builder, self.builder.fcmp_ordered(relation, self.value, other.value))

    def select(self, yes: Vector, no: Vector) -> Vector:
        """`yes` where this mask is set, `no` elsewhere."""
        return Vector(self.builder, self.builder.select(self.value, yes.value, no.value))

    def minimum(self, other: Vector) -> Vector:
        """The minimum, lane by lane; `self` where one is NaN."""
        return other.compare("<", self).select(other, self)

    def maximum(self, other: Vector) -> Vector:
        """The maximum, lane by lane; `self` where one is NaN."""
        return other.compare(">", self).select(other, self)


class Vectors:
    """Loads, stores and constants of vectors with `WIDTH` lanes."""

    def __init__(self, context: Any, builder: Any) -> None:
        self._context, self._builder = context, builder
        self.double = ir.VectorType(ir.DoubleType(), WIDTH)

    def data(self, kind: Any, array: Any) -> ArrayData:
        """The elements of a contiguous numba array."""
        return ArrayData.of(self._context, self._builder, kind, array)

    def data_of_each(self, kind: Any, arrays: Any) -> list[ArrayData]:
        """The same for each array of a tuple."""
        values = cgutils.unpack_tuple(self._builder, arrays)
        return [self.data(*pair) for pair in zip(kind, values, strict=True)]

    def load(self, data: ArrayData, index: Any) -> Vector:
        """Elements `index` and following."""
        place = element_at(self._builder, data.start, index, data.element)
        kind = ir.VectorType(data.element, WIDTH)
        return Vector(self._builder, self._builder.load(place, align=1, typ=kind))

    def store(self, vector: Vector, data: ArrayData, index: Any) -> None:
        """Write to elements `index` and following."""
        place = element_at(self._builder, data.start, index, data.element)
        self._builder.store(vector.value, place, align=1)

    def load_double(self, data: ArrayData, index: Any) -> Vector:
        """The same from an array of float32, float64 or integers, as float64."""
        found = self.load(data, index)
        element = found.value.type.element
        if isinstance(element, ir.FloatType):
            return Vector(self._builder, self._builder.fpext(found.value, self.double))
        if isinstance(element, ir.IntType):
            return Vector(self._builder, self._builder.sitofp(found.value, self.double))
        return found

    def constant(self, value: float, like: Vector | None = None) -> Vector:
        """The same number in all lanes: float64, or of the type of another vector."""
        kind = self.double if like is None else like.value.type
        return Vector(self._builder, ir.Constant(kind, [value] * WIDTH))

    def splat(self, scalar: Any) -> Vector:
        """A float64 value in all lanes."""
        undefined = ir.Constant(self.double, ir.Undefined)
        first = self._builder.insert_element(undefined, scalar, ir.IntType(32)(0))
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)
        return Vector(self._builder, self._builder.shuffle_vector(first, undefined, lanes))


def each_vector(
    vectors: Vectors,
    builder: Any,
    start: Any,
    stop: Any,
    carried: list[Vector],
    body: Callable[[Any, list[Vector]], list[Vector]],
) -> list[Vector]:
    """``carried = body(i, carried)`` for i = start, start + WIDTH, ... below stop (at least once).

    Returns
    -------
    list of Vector
        What the last call returned.
    """
    before = builder.block
    loop, after = builder.append_basic_block("vectors"), builder.append_basic_block("done")
    builder.branch(loop)
    builder.position_at_end(loop)
    i = builder.phi(_INDEX)
    i.add_incoming(start, before)
    inside = []
    for vector in carried:
        phi = builder.phi(vector.value.type)
        phi.add_incoming(vector.value, before)
        inside.append(phi)
    updated = body(i, [Vector(builder, phi) for phi in inside])
    for phi, vector in zip(inside, updated, strict=True):
        phi.add_incoming(vector.value, loop)
    following = builder.add(i, _INDEX(WIDTH))
    i.add_incoming(following, loop)
    builder.cbranch(builder.icmp_signed("<", following, stop), loop, after)
    builder.position_at_end(after)
    return updated
