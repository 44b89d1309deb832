"""Conjugate pairwise steps on a subproblem, compiled: what the block schedule takes between passes.

They end at the same solution as the paper's steps, in far fewer iterations:

- the away node is the one that promises the largest decrease (second order), where the paper takes
  the highest derivative;
- the direction e_s - e_v is made conjugate to the last one, d, which costs one more vector, Q d
  (Torres-Barran, Alaiz, Dorronsoro: arXiv 2003.08719). Where that step would leave the simplex, the
  plain one is taken instead.

As in the paper, at most one idle pattern joins in an iteration: the one with the lowest derivative,
if that is 0 or less.

No value depends on the order of the patterns: among equals the lowest index is taken.
"""

from typing import Any, NamedTuple

import numpy as np

from bigsvm.core.compiled import inner_njit, njit
from bigsvm.solvers.state import EXCLUDED, IDLE, SUPPORT, WORKING
from bigsvm.solvers.sweeps import (
    BLOCK,
    HIGHEST,
    LOWEST,
    WAITING,
    best_gains,
    gain_of,
    update_gradient,
)

CONVERGED, CACHE_MISS, PAUSED, NUMERICAL_FAILURE = range(4)  # why the steps ended
# Entries of `Direction.numbers`: a'Qa; d'Qd, 0 where there is no direction; the gap.
QUAD_FORM, CURVATURE, GAP = range(3)
# Entries of `Direction.nodes`: forward, highest of the support, away, how many have moved, and
# whether a pattern has joined in this iteration.
FORWARD, TOP, AWAY, MOVED, JOINED = range(5)
# A direction that has gathered this many patterns is dropped: each costs time in every step.
_LONGEST = 1024
# Below this share of the plain curvature a conjugate one is rounding.
_FLAT = 1e-9


class Point(NamedTuple):
    """An iterate of the subproblem, padded to whole vectors with patterns that take no part.

    `index` are the patterns' numbers in the data, `diagonal` is that of Q.
    """

    alpha: Any
    gradient: Any
    role: Any
    index: Any
    signs: Any
    diagonal: Any
    intercept: Any


class Direction(NamedTuple):
    """The last direction d, Q d, and scratch.

    d is sparse: `d[k]` is its component for the pattern `moved[k]`, in the order they came, and
    `place[i]` is the k of pattern i, or -1.
    """

    d: Any
    product: Any
    moved: Any
    place: Any
    numbers: Any
    nodes: Any
    extremes: Any
    gains: Any


class Columns(NamedTuple):
    """Kernel columns at hand; see `HotColumns`."""

    values: Any
    slot: Any


def new_direction(n: int, quad_form: float) -> Direction:
    """No direction yet; a'Qa is given."""
    blocks = -(-n // BLOCK)
    numbers = np.array([quad_form, 0.0, np.inf])
    return Direction(
        np.zeros(_LONGEST + 2), np.zeros(n), np.empty(_LONGEST + 2, np.int64),
        np.full(n, -1, np.int16), numbers, np.zeros(5, np.int64), np.empty((3, blocks)),
        np.empty(blocks),
    )  # fmt: skip


@njit(cache=True, nogil=True)
def find_nodes(point, direction):  # type: ignore[no-untyped-def]
    """Look for the nodes of the first step."""
    for block in range(direction.extremes.shape[1]):
        waiting, lowest, highest = np.inf, np.inf, -np.inf
        for i in range(block * BLOCK, min((block + 1) * BLOCK, len(point.gradient))):
            g, role = point.gradient[i], point.role[i]
            if role == IDLE:
                waiting = min(waiting, g)
            elif role > IDLE:
                lowest = min(lowest, g)
            if role == SUPPORT:
                highest = max(highest, g)
        direction.extremes[WAITING, block] = waiting
        direction.extremes[LOWEST, block] = lowest
        direction.extremes[HIGHEST, block] = highest
    _locate_nodes(point, direction)


@njit(cache=True, nogil=True)
def conjugate_steps(point, direction, columns, rule, iteration, until):  # type: ignore[no-untyped-def]
    """Take steps until convergence, a cache miss, iteration `until` or a numerical failure.

    `rule` is the relative and the absolute tolerance. Returns why, and the iteration. After a cache
    miss the forward or the away node is without a column.
    """
    alpha, gradient, role, signs = point.alpha, point.gradient, point.role, point.signs
    numbers, nodes = direction.numbers, direction.nodes
    while True:
        waiting = direction.extremes[WAITING].min()
        if waiting <= 0 and nodes[JOINED] == 0:
            u = _locate(point, direction.extremes[WAITING], WAITING, waiting)
            role[u] = WORKING
            nodes[JOINED] = 1
            if _is_lower(point, u, nodes[FORWARD]):
                nodes[FORWARD] = u
        s, top = nodes[FORWARD], nodes[TOP]
        numbers[GAP] = gradient[top] - gradient[s]
        if not np.isfinite(numbers[GAP]):
            return NUMERICAL_FAILURE, iteration
        threshold = rule[0] * max(numbers[QUAD_FORM], 0.0) + rule[1]
        if numbers[GAP] <= threshold and nodes[JOINED] == 0:
            return CONVERGED, iteration
        if iteration >= until:
            return PAUSED, iteration
        if numbers[GAP] <= 0.0:  # one has joined, but there is no step to take
            find_nodes(point, direction)
            nodes[JOINED] = 0
            continue
        nodes[AWAY] = top
        if columns.slot[s] < 0:
            return CACHE_MISS, iteration
        k_s = columns.values[columns.slot[s]]
        v = nodes[AWAY] = _away_node(point, direction, k_s, s)
        if columns.slot[v] < 0:
            return CACHE_MISS, iteration
        k_v = columns.values[columns.slot[v]]
        q_sv = signs[s] * signs[v] * (np.float64(k_s[v]) + point.intercept)
        curvature = point.diagonal[s] + point.diagonal[v] - 2 * q_sv
        fall = gradient[v] - gradient[s]
        if not curvature > 0:
            return NUMERICAL_FAILURE, iteration
        beta, conjugate = _conjugate(point, direction, curvature, fall, s, v)
        if conjugate > 0:
            curvature = conjugate
            length = fall / curvature
        else:
            _drop(direction)
            length = min(fall / curvature, alpha[v])
        if not length > 0:
            return NUMERICAL_FAILURE, iteration
        numbers[QUAD_FORM] += length * (length * curvature - 2 * fall)
        _move(point, direction, beta, length, s, v)
        _update(point, direction, (k_s, k_v, q_sv), beta, length, s, v)
        # A step that emptied v was cut short: g is not orthogonal to d, which CG needs.
        if beta == 0.0 and alpha[v] == 0.0:
            _drop(direction)
        else:
            numbers[CURVATURE] = curvature
        nodes[JOINED] = 0
        iteration += 1


@inner_njit(cache=True, nogil=True)
def _away_node(point, direction, k_s, s):  # type: ignore[no-untyped-def]
    """The pattern of the support that promises the largest decrease as away node."""
    factor = 2 * np.float64(point.signs[s])
    g_s, q_ss = point.gradient[s], point.diagonal[s]
    gains = direction.gains
    best_gains(point, k_s, g_s, q_ss, factor, gains)
    best, found = gains.max(), -1
    for block in range(len(gains)):
        if gains[block] == best:
            for i in range(block * BLOCK, min((block + 1) * BLOCK, len(point.gradient))):
                if gain_of(point, k_s, g_s, q_ss, factor, i) == best and (
                    found < 0 or point.index[i] < point.index[found]
                ):
                    found = i
    return found if best > 0 else direction.nodes[TOP]


@inner_njit(cache=True, nogil=True)
def _conjugate(point, direction, curvature, fall, s, v):  # type: ignore[no-untyped-def]
    """beta and the curvature of e_s - e_v + beta d, conjugate to d; 0 and 0 where it cannot be."""
    d_q_d, moved = direction.numbers[CURVATURE], direction.nodes[MOVED]
    if d_q_d == 0.0 or moved >= _LONGEST:
        return 0.0, 0.0
    along = direction.product[s] - direction.product[v]
    beta = -along / d_q_d
    conjugate = curvature + beta * along
    if not conjugate > _FLAT * curvature:
        return 0.0, 0.0
    length = fall / conjugate  # d'g = 0 after a full step, so the slope is that of e_s - e_v
    is_feasible = True  # no early exit, so that the loop is compiled to vectors
    for k in range(moved):
        i = direction.moved[k]
        move = beta * direction.d[k] + (i == s) - (i == v)
        is_feasible &= not (point.alpha[i] + length * move < 0)
    if direction.place[v] < 0 and point.alpha[v] - length < 0:
        is_feasible = False
    return (beta, conjugate) if is_feasible else (0.0, 0.0)


@inner_njit(cache=True, nogil=True)
def _drop(direction):  # type: ignore[no-untyped-def]
    """Begin a new sequence of conjugate directions."""
    for k in range(direction.nodes[MOVED]):
        direction.place[direction.moved[k]] = -1
    direction.nodes[MOVED] = 0
    direction.numbers[CURVATURE] = 0.0


@inner_njit(cache=True, nogil=True)
def _move(point, direction, beta, length, s, v):  # type: ignore[no-untyped-def]
    """d = beta d + e_s - e_v, alpha = alpha + length d."""
    for i in (s, v):
        if direction.place[i] < 0:
            k = direction.nodes[MOVED]
            direction.moved[k], direction.d[k], direction.place[i] = i, 0.0, k
            direction.nodes[MOVED] += 1
    for k in range(direction.nodes[MOVED]):
        i = direction.moved[k]
        move = beta * direction.d[k] + (i == s) - (i == v)
        direction.d[k] = move
        moved = point.alpha[i] + length * move
        point.alpha[i] = moved
        point.role[i] = SUPPORT if moved > 0 else WORKING


@inner_njit(cache=True, nogil=True)
def _update(point, direction, pair, beta, length, s, v):  # type: ignore[no-untyped-def]
    """Q d and the gradient after a move, and the nodes of the next step.

    s and v are left out of the sweep: the diagonal of Q concerns them alone.
    """
    k_s, k_v, q_sv = pair
    gradient, product, role, signs = point.gradient, direction.product, point.role, point.signs
    new_s = beta * product[s] + (point.diagonal[s] - q_sv)
    new_v = beta * product[v] + (q_sv - point.diagonal[v])
    g_s, g_v = gradient[s] + length * new_s, gradient[v] + length * new_v
    role_s, role_v = role[s], role[v]
    role[s] = role[v] = EXCLUDED
    sign_s, sign_v = np.float64(signs[s]), np.float64(signs[v])
    factors = (beta, length, sign_s, sign_v, point.intercept * (sign_s - sign_v))
    update_gradient(point, product, k_s, k_v, factors, direction.extremes)
    gradient[s], gradient[v], product[s], product[v] = g_s, g_v, new_s, new_v
    _locate_nodes(point, direction)
    role[s], role[v] = role_s, role_v
    nodes = direction.nodes
    for i in (s, v):
        if _is_lower(point, i, nodes[FORWARD]):
            nodes[FORWARD] = i
        if role[i] == SUPPORT and _is_higher(point, i, nodes[TOP]):
            nodes[TOP] = i


@inner_njit(cache=True, nogil=True)
def _locate_nodes(point, direction):  # type: ignore[no-untyped-def]
    """The forward node and the top of the support, from the extremes of the blocks."""
    extremes, nodes = direction.extremes, direction.nodes
    nodes[FORWARD] = _locate(point, extremes[LOWEST], LOWEST, extremes[LOWEST].min())
    nodes[TOP] = _locate(point, extremes[HIGHEST], HIGHEST, extremes[HIGHEST].max())


@inner_njit(cache=True, nogil=True)
def _locate(point, extremes, kind, extreme):  # type: ignore[no-untyped-def]
    """The pattern with this derivative (the lowest index among equals), -1 where there is none."""
    found = -1
    for block in range(len(extremes)):
        if extremes[block] != extreme:
            continue
        for i in range(block * BLOCK, min((block + 1) * BLOCK, len(point.gradient))):
            if point.gradient[i] != extreme:
                continue
            role = point.role[i]
            if kind == WAITING:
                eligible = role == IDLE
            elif kind == LOWEST:
                eligible = role > IDLE
            else:
                eligible = role == SUPPORT
            if not eligible:
                continue
            if found < 0 or point.index[i] < point.index[found]:
                found = i
    return found


@inner_njit(cache=True, nogil=True)
def _is_lower(point, i, j):  # type: ignore[no-untyped-def]
    """Whether i goes before j as forward node."""
    if j < 0:
        return True
    g_i, g_j = point.gradient[i], point.gradient[j]
    return g_i < g_j or (g_i == g_j and point.index[i] < point.index[j])


@inner_njit(cache=True, nogil=True)
def _is_higher(point, i, j):  # type: ignore[no-untyped-def]
    """Whether i goes before j as top of the support."""
    if j < 0:
        return True
    g_i, g_j = point.gradient[i], point.gradient[j]
    return g_i > g_j or (g_i == g_j and point.index[i] < point.index[j])
