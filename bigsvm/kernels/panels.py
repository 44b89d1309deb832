"""Kernel values, computed in panels.

Sixteen patterns stand side by side, feature by feature, in a *panel* of shape (d, 16); a *pack*
holds six rows in the same way, shape (d, 6) (twelve, where the processor has registers for them).
One tile, the 6 x 16 kernel values between a pack and a panel, is computed in vector registers.
Distances are sums of squared (or absolute) differences, so nothing cancels, however far out the
patterns lie; for wide rows, dot products are used where they are as precise (`wide_rbf.py`).

Every value is computed by the same sequence of correctly rounded operations (fused multiply-adds
are emitted explicitly, never left to the compiler), each pair in one lane. A value therefore does
not depend on the chunk, the lane, the pack or the thread that computes it. All guarantees of equal
bits rest on this.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numba import get_num_threads, prange
from numba.extending import overload

from bigsvm.core.arrays import RowChunks
from bigsvm.core.compiled import njit, parallel_njit
from bigsvm.kernels.tiles import (
    LANES,
    PACK,
    TRANSPOSED,
    add_products,
    dot_products,
    fused,
    laplacian_values,
    rbf_values,
    store_lanes,
    take,
    transpose,
)
from bigsvm.kernels.wide_rbf import add_squares, norms_of, wide_rbf_values

NAMES = ("rbf", "laplacian", "linear", "poly")

# What stays in the second-level cache: the packs of one sweep over the data, or a run of panels.
_CACHED_BYTES = 256 * 1024
# Panels that a thread takes at a time. For products, a fixed number; for columns, as many as stay
# in the cache while all packs are applied to them, but at most an eighth of a thread's share:
# otherwise the other threads would wait for the last one.
_RUN = 64
_RUNS_PER_THREAD = 8
_NONE = np.empty((0, LANES), np.float32)


class Parameters(NamedTuple):
    """The parameters of a kernel in compiled code.

    Each kernel has a subclass, whose type selects the tile: a run compiles only that of its kernel.
    """

    gamma: np.float32  # divided by ln 2 for kernels computed as powers of two
    coef0: np.float32
    degree: int


class Panels(NamedTuple):
    """Patterns `start` to `stop` in panels, and their norms (none if the rows are not wide)."""

    data: np.ndarray
    norms: np.ndarray
    start: int
    stop: int


class Packs(NamedTuple):
    """Rows in packs, `n` of them, and their norms if the patterns have norms."""

    data: np.ndarray
    norms: np.ndarray
    n: int


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

    @cached_property
    def parameters(self) -> Parameters:
        """The parameters as compiled code takes them."""
        gamma = self.gamma / np.log(2) if self.name in ("rbf", "laplacian") else self.gamma
        return _KINDS[self.name](np.float32(gamma), np.float32(self.coef0), self.degree)

    def parameters_with(self, norms: np.ndarray) -> Parameters:
        """The same, for patterns with these norms (none if the rows are not wide)."""
        return _WideRbf(*self.parameters) if len(norms) else self.parameters


def panels_of(x: np.ndarray) -> np.ndarray:
    """Lay out rows (n, d) as panels (n / 16 rounded up, d, 16), the last one padded with zeros."""
    panels = np.zeros((-(-len(x) // LANES), x.shape[1], LANES), np.float32)
    fill_panels(np.ascontiguousarray(x, np.float32), panels)
    return panels


@dataclass(frozen=True)
class Block:
    """Patterns `start` to `stop` of a data set, in panels."""

    start: int
    stop: int
    panels: np.ndarray

    @cached_property
    def norms(self) -> np.ndarray:
        """The squared norms of the patterns if their rows are wide; see `norms_of`."""
        return norms_of(self.panels)


def block_of(x: np.ndarray, start: int = 0) -> Block:
    """The block of rows (n, d) whose first is pattern `start`."""
    return Block(start, start + len(x), panels_of(x))


def columns(
    kernel: Kernel, block: Block, rows: np.ndarray, out: np.ndarray, slots: np.ndarray
) -> None:
    """Write k(row j, pattern i) to ``out[slots[j], i]`` for the patterns i of the block."""
    for panels, packs, some in _sweeps(kernel, block, rows):
        parameters = kernel.parameters_with(panels.norms)
        _columns(panels, packs, parameters, out, slots[some], get_num_threads())


def products(
    kernel: Kernel, block: Block, rows: np.ndarray, coef: np.ndarray, out: np.ndarray
) -> None:
    """Add sum_j coef[j, c] k(row j, pattern i) to ``out[c, i]`` for the patterns i of the block.

    The sum runs over the rows in their order, in float64, and skips coefficients of 0; its bits do
    not depend on the other sums. The kernel values are never stored. For the linear kernel the rows
    are summed first, which leaves one product per pattern, however many rows there are.
    """
    if kernel.name == "linear":
        weights = np.zeros((coef.shape[1], rows.shape[1]))
        add_to_weights(rows, coef, weights)
        linear_products(block, weights, out)
        return
    for panels, packs, some in _sweeps(kernel, block, rows):
        parameters = kernel.parameters_with(panels.norms)
        padded = np.zeros((len(packs.data) * PACK, coef.shape[1]))
        padded[: packs.n] = coef[some]
        _products(panels, packs, parameters, padded, out, get_num_threads())


def linear_products(block: Block, weights: np.ndarray, out: np.ndarray) -> None:
    """Add weights[c] . (pattern i) to ``out[c, i]`` for the patterns i of the block."""
    _linear_products(block.panels, weights, out, block.start, block.stop)


def _writeable(rows: np.ndarray) -> np.ndarray:
    """Rows as writeable float32 in C order: for read-only arrays, numba would compile again."""
    rows = np.ascontiguousarray(rows, np.float32)
    return rows if rows.flags.writeable else rows.copy()


def _sweeps(kernel: Kernel, block: Block, rows: np.ndarray) -> Iterator[tuple]:
    """Yield the block, and the rows in groups of packs that stay in the cache."""
    rows, norms = _writeable(rows), block.norms if kernel.name == "rbf" else _NONE
    panels = Panels(block.panels, norms, block.start, block.stop)
    size = max(4 * PACK, _CACHED_BYTES // (4 * rows.shape[1]) // PACK * PACK)
    for start in range(0, len(rows), size):
        some = slice(start, start + size)
        yield panels, _packs_of(rows[some], norms), some


# One compiled call: as several steps in Python this would take a fifth of the time that the columns
# of a hot set take.
@njit(cache=True, nogil=True)
def _packs_of(rows, norms):  # type: ignore[no-untyped-def]
    """Rows in packs; `norms` are those of the patterns."""
    packs = np.zeros((-(-rows.shape[0] // PACK), rows.shape[1], PACK), np.float32)
    _interleave(rows, 0, packs)
    row_norms = np.zeros((packs.shape[0] if norms.shape[0] else 0, PACK), np.float32)
    add_squares(packs, row_norms)
    return Packs(packs, row_norms, rows.shape[0])


@njit(inline="always")
def _interleave(x, first, groups):  # type: ignore[no-untyped-def]
    """Lay out rows (n, d) from row `first` on in groups (n / width rounded up, d, width)."""
    width = groups.shape[2]
    for i in range(first, x.shape[0]):
        group, lane = divmod(i, width)
        for k in range(x.shape[1]):
            groups[group, k, lane] = x[i, k]


@njit(cache=True, nogil=True)
def fill_panels(x, panels):  # type: ignore[no-untyped-def]
    """Lay out rows (n, d) in panels (n / 16 rounded up, d, 16)."""
    whole, d = x.shape[0] // LANES, x.shape[1]
    transposed = d // TRANSPOSED * TRANSPOSED
    for p in range(whole):
        for k in range(0, transposed, TRANSPOSED):
            transpose(x, p * LANES, k, panels, (p * d + k) * LANES)
        for k in range(transposed, d):
            for lane in range(LANES):
                panels[p, k, lane] = x[p * LANES + lane, k]
    _interleave(x, whole * LANES, panels)


class _Rbf(Parameters):
    """By differences, which are precise at any distance."""


class _WideRbf(Parameters):
    """By dot products where these are as precise; see `wide_rbf.py`."""


class _Laplacian(Parameters):
    """By absolute differences."""


class _Linear(Parameters):
    """By dot products."""


class _Poly(Parameters):
    """By powers of dot products."""


_KINDS = dict(zip(NAMES, (_Rbf, _Laplacian, _Linear, _Poly), strict=True))


def _tile(panels, p, packs, g, used, kernel, values, others):  # type: ignore[no-untyped-def]
    """Compute the kernel values of the `used` rows of pack g and panel p: values[j * 16 + lane].

    `others` is scratch of the same size. Compiled code calls one of the functions below instead.
    """


def _rbf(panels, p, packs, g, used, kernel, values, others):  # type: ignore[no-untyped-def]
    rbf_values(panels.data, p, packs.data, g, used, kernel.gamma, values)


def _wide_rbf(panels, p, packs, g, used, kernel, values, others):  # type: ignore[no-untyped-def]
    wide_rbf_values(panels, p, packs, g, used, kernel.gamma, values, others)


def _laplacian(panels, p, packs, g, used, kernel, values, others):  # type: ignore[no-untyped-def]
    laplacian_values(panels.data, p, packs.data, g, used, kernel.gamma, values)


def _linear(panels, p, packs, g, used, kernel, values, others):  # type: ignore[no-untyped-def]
    dot_products(panels.data, p, packs.data, g, used, kernel.gamma, values)


def _poly(panels, p, packs, g, used, kernel, values, others):  # type: ignore[no-untyped-def]
    dot_products(panels.data, p, packs.data, g, used, kernel.gamma, values)
    for i in range(used * LANES):
        base = fused(kernel.gamma, values[i], kernel.coef0)
        power = np.float32(1.0)
        for _ in range(kernel.degree):
            power *= base
        values[i] = power


_TILES = {_Rbf: _rbf, _WideRbf: _wide_rbf, _Laplacian: _laplacian, _Linear: _linear, _Poly: _poly}


@overload(_tile, inline="always")
def _tile_of(panels, p, packs, g, used, kernel, values, others) -> Any:  # type: ignore[no-untyped-def]
    return _TILES[kernel.instance_class]


@parallel_njit(cache=True, nogil=True)
def _columns(panels, packs, kernel, out, slots, workers):  # type: ignore[no-untyped-def]
    # Threads take runs of panels dynamically: with a fixed division, all would wait for the thread
    # that shares its core with the reader of the next chunk.
    count, stop = panels.data.shape[0], panels.stop
    # Each pack is applied to a whole run of panels before the next one, so that every column is
    # written in long runs: writing 64 bytes to each of 256 columns in turn would cost more time
    # than computing the kernel.
    fitting = _CACHED_BYTES // (4 * LANES * panels.data.shape[1])
    length = max(1, min(fitting, count // (_RUNS_PER_THREAD * workers)))
    taken = np.zeros(1, np.int64)
    for _ in prange(workers):
        values, others = np.empty((2, PACK * LANES), np.float32)
        begin = take(taken, length)
        while begin < count:
            for g in range(packs.data.shape[0]):
                used = min(PACK, packs.n - g * PACK)
                for p in range(begin, min(begin + length, count)):
                    _tile(panels, p, packs, g, used, kernel, values, others)
                    first = panels.start + p * LANES
                    if first + LANES <= stop:
                        for j in range(used):
                            position = slots[g * PACK + j] * out.shape[1] + first
                            store_lanes(values, j, out, position)
                    else:
                        for j in range(used):
                            for lane in range(stop - first):
                                out[slots[g * PACK + j], first + lane] = values[j * LANES + lane]
            begin = take(taken, length)


@parallel_njit(cache=True, nogil=True)
def _products(panels, packs, kernel, coef, out, workers):  # type: ignore[no-untyped-def]
    count, stop, outputs = panels.data.shape[0], panels.stop, coef.shape[1]
    taken = np.zeros(1, np.int64)
    for _ in prange(workers):
        values, others = np.empty((2, PACK * LANES), np.float32)
        partial = np.zeros((outputs, LANES))  # the sums of a panel that is not full
        begin = take(taken, _RUN)
        while begin < count:
            for p in range(begin, min(begin + _RUN, count)):
                first = panels.start + p * LANES
                is_whole = first + LANES <= stop
                if not is_whole:  # loops: an array assignment takes seconds to compile
                    for c in range(outputs):
                        for lane in range(stop - first):
                            partial[c, lane] = out[c, first + lane]
                for g in range(packs.data.shape[0]):
                    used = min(PACK, packs.n - g * PACK)
                    _tile(panels, p, packs, g, used, kernel, values, others)
                    for c in range(outputs):
                        if is_whole:
                            add_products(values, coef, g, used, c, out, c * out.shape[1] + first)
                        else:
                            add_products(values, coef, g, used, c, partial, c * LANES)
                if not is_whole:
                    for c in range(outputs):
                        for lane in range(stop - first):
                            out[c, first + lane] = partial[c, lane]
            begin = take(taken, _RUN)


def diagonal(kernel: Kernel, rows: RowChunks) -> np.ndarray:
    """k(row, row) for each row, float64, with the bits that it has in a kernel column."""
    if kernel.name in ("rbf", "laplacian"):
        return np.ones(rows.shape[0])
    pieces = [_diagonal(_writeable(piece), panels_of(piece), kernel.parameters) for piece in rows]
    return np.concatenate(pieces)


@njit(cache=True, nogil=True)
def _diagonal(rows, panels, kernel):  # type: ignore[no-untyped-def]
    n, d = rows.shape
    found = np.empty(n)
    pack = np.zeros((1, d, PACK), np.float32)
    no_norms = np.empty((0, LANES), np.float32)
    block, packs = Panels(panels, no_norms, 0, n), Packs(pack, no_norms, 1)
    values, others = np.empty((2, PACK * LANES), np.float32)
    for i in range(n):
        pack[0, :, 0] = rows[i]
        _tile(block, i // LANES, packs, 0, 1, kernel, values, others)
        found[i] = values[i % LANES]
    return found


@njit(cache=True, nogil=True)
def add_to_weights(rows, coef, weights):  # type: ignore[no-untyped-def]
    """Add to the weight vectors sum_j coef[j, c] row_j, in the order of the rows."""
    for j in range(rows.shape[0]):
        for c in range(coef.shape[1]):
            for k in range(rows.shape[1]):
                weights[c, k] = fused(coef[j, c], rows[j, k], weights[c, k])


@parallel_njit(cache=True, nogil=True)
def _linear_products(panels, weights, out, start, stop):  # type: ignore[no-untyped-def]
    for p in prange(panels.shape[0]):
        sums = np.zeros(LANES)
        for c in range(weights.shape[0]):
            sums[:] = 0.0
            for k in range(panels.shape[1]):
                for lane in range(LANES):
                    sums[lane] = fused(weights[c, k], panels[p, k, lane], sums[lane])
            first = start + p * LANES
            for lane in range(min(LANES, stop - first)):
                out[c, first + lane] += sums[lane]


def warm_up(kernel: Kernel) -> None:
    """Compile or load the functions that training calls, before free memory is measured."""
    rows = np.zeros((1, 1), np.float32)
    columns(kernel, block_of(rows), rows, np.empty((1, 1), np.float32), np.zeros(1, np.int64))
    products(kernel, block_of(rows), rows, np.zeros((1, 1)), np.zeros((1, 1)))
