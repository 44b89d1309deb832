"""The step of Algorithms 1 and 2 of the paper, compiled: on kernel columns that are cached.

`reference.py` is the same loop in plain numpy; the comments name the same lines. `fw` and `mfw`
differ in the roles of the patterns alone: in `fw` none is idle, so that none ever joins.

Two departures from the paper. An idle pattern joins at a derivative of 0 or less, where the paper
has: below 0. That differs only where the derivative is exactly 0, so where the model cannot decide.
It matters when a row has a twin with the opposite label and is the first pattern: the first step
puts 1/2 on each, the decision is 0 everywhere, and by the paper's rule nothing would ever join
(a9a has 4,150 such rows). And the stop test may be relative to the margin; see `StopRule`.
"""

from typing import Any, NamedTuple

import numpy as np

from bigsvm.core.compiled import njit
from bigsvm.solvers.nodes import q_entries, update_gradient
from bigsvm.solvers.state import SUPPORT, WORKING, quad_form

CONVERGED, CACHE_MISS, PAUSED, NUMERICAL_FAILURE = range(4)  # why the steps ended
# Entries of `nodes`: the first three as `find_nodes` returns them, then JOINED_NONE or JOINED_ANY.
IDLE_NODE, FORWARD, AWAY, JOINED = range(4)
JOINED_NONE, JOINED_ANY = range(2)  # in this iteration
# How far the running a'Qa may be off from its sum before a stop test would be missed.
_CLOSE = 1.001


class CachedColumns(NamedTuple):
    """Kernel columns, the slot of each pattern, when each slot was used last, and the time now.

    See `ColumnCache`.
    """

    values: Any
    slot: Any
    last_used: Any
    now: Any


@njit(cache=True, nogil=True)
def _gap_here(gradient, nodes):  # type: ignore[no-untyped-def]
    """The gap that the next stop test will see: the idle pattern may join first."""
    lowest, idle = gradient[nodes[FORWARD]], nodes[IDLE_NODE]
    if idle >= 0 and gradient[idle] <= 0:
        lowest = min(lowest, gradient[idle])
    return gradient[nodes[AWAY]] - lowest


@njit(cache=True, nogil=True)
def steps(iterate, columns, rule, nodes, iteration, until):  # type: ignore[no-untyped-def]
    """Run pairwise steps until convergence, a cache miss, iteration `until` or a failure.

    `rule` is the relative and the absolute tolerance of a `StopRule`. Returns why, the iteration
    and the gap.

    The relative rule decides by a'Qa as summed over the support, so that the last iteration does
    not depend on where earlier calls ended. That sum takes a sweep over all patterns, so each step
    only updates an estimate, which says when the sum is worth computing.
    """
    alpha, gradient, role = iterate.alpha, iterate.gradient, iterate.role
    relative, absolute = rule
    estimate = summed = quad_form(alpha, gradient) if relative > 0 else 0.0
    while True:
        # Alg. 2, lines 9-12: the idle pattern with the lowest derivative joins.
        idle = nodes[IDLE_NODE]
        if idle >= 0 and gradient[idle] <= 0 and nodes[JOINED] == JOINED_NONE:
            role[idle] = WORKING
            nodes[JOINED] = JOINED_ANY
            if (gradient[idle], idle) < (gradient[nodes[FORWARD]], nodes[FORWARD]):
                nodes[FORWARD] = idle
        # Alg. 1, lines 6-9; Alg. 2, lines 15-18: the nodes, found by the last sweep, and the gap.
        s, v = nodes[FORWARD], nodes[AWAY]
        gap = gradient[v] - gradient[s]
        if not np.isfinite(gap):
            return NUMERICAL_FAILURE, iteration, gap
        if s == v:  # all weight is on one pattern, and no other is lower
            return CONVERGED, iteration, gap
        if nodes[JOINED] == JOINED_NONE:
            # Alg. 1, line 13; Alg. 2, line 22: the stop test, before a step that it makes needless.
            # Updates keep the absolute error of the estimate, so that it needs a new sum after the
            # quadratic form itself has become smaller.
            near = gap <= _CLOSE * relative * max(estimate, 0.0)
            if relative > 0 and (near or estimate < 0.5 * summed):
                estimate = summed = quad_form(alpha, gradient)
            if gap <= relative * max(estimate, 0.0) + absolute:
                return CONVERGED, iteration, gap
        if columns.slot[s] < 0 or columns.slot[v] < 0:
            return CACHE_MISS, iteration, gap
        k_s, k_v = columns.values[columns.slot[s]], columns.values[columns.slot[v]]
        columns.last_used[columns.slot[s]] = columns.last_used[columns.slot[v]] = columns.now
        # Alg. 1, line 10; Alg. 2, line 19: the exact line search, cut at the simplex.
        q_ss, q_vv, q_sv = q_entries(iterate, k_s, k_v, s, v)
        curvature = q_ss + q_vv - 2 * q_sv
        step = min(gap / curvature, alpha[v])
        if not step > 0:
            return NUMERICAL_FAILURE, iteration, gap
        estimate += step * (step * curvature - 2 * gap)
        # Alg. 1, line 11; Alg. 2, line 20: move weight from v to s.
        alpha[s] += step
        alpha[v] -= step
        role[s] = SUPPORT
        if alpha[v] == 0:
            role[v] = WORKING
        # Alg. 1, line 12; Alg. 2, line 21: the gradient, and with it the next nodes.
        nodes[IDLE_NODE], nodes[FORWARD], nodes[AWAY] = update_gradient(
            iterate, k_s, k_v, s, v, step
        )
        nodes[JOINED] = JOINED_NONE
        iteration += 1
        if iteration >= until:
            return PAUSED, iteration, _gap_here(gradient, nodes)
