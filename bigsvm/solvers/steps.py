"""The steps of the paper's loop, compiled: on kernel columns that are at hand."""

import numpy as np
from numba import njit

from bigsvm.solvers.nodes import three_of_q, update_gradient
from bigsvm.solvers.state import SUPPORT, WORKING

CLOSED, MISSING, PAUSED, OVERFLOWED = range(4)  # why they ended
NOBODY, ANYBODY, SCOUT = range(3)  # who has joined


@njit(cache=True, nogil=True)
def steps(  # type: ignore[no-untyped-def]
    alpha,
    gradient,
    role,
    signs,
    C,
    intercept,
    tolerance,
    columns,
    slot,
    last_used,
    now,
    nodes,
    iteration,
    until,
    leave_at,
    scouts,
):
    """Section 1 of the design, until something is wanted of the caller: why, iteration, gap.

    `nodes` are idle, toward, away, and who has joined in this iteration; columns are last used
    `now`, as the cache counts.
    """
    while True:
        idle = nodes[0]
        if idle >= 0 and gradient[idle] < 0 and nodes[3] == NOBODY:
            role[idle] = WORKING
            nodes[3] = SCOUT if scouts[idle] else ANYBODY
            if (gradient[idle], idle) < (gradient[nodes[1]], nodes[1]):
                nodes[1] = idle
        s, v = nodes[1], nodes[2]
        gap = gradient[v] - gradient[s]
        if not np.isfinite(gap):
            return OVERFLOWED, iteration, gap
        # In a hot set all weight may come to lie on one pattern, which then has nobody to give to.
        if s == v or (gap <= tolerance and nodes[3] == NOBODY):
            return CLOSED, iteration, gap
        if slot[s] < 0 or slot[v] < 0:
            return MISSING, iteration, gap
        k_s, k_v = columns[slot[s]], columns[slot[v]]
        last_used[slot[s]] = last_used[slot[v]] = now
        q_ss, q_vv, q_sv = three_of_q(signs, C, intercept, k_s, k_v, s, v)
        step = min(gap / (q_ss + q_vv - 2 * q_sv), alpha[v])
        if not step > 0:
            return OVERFLOWED, iteration, gap
        alpha[s] += step
        alpha[v] -= step
        role[s] = SUPPORT
        if alpha[v] == 0:
            role[v] = WORKING
        nodes[0], nodes[1], nodes[2] = update_gradient(
            gradient, role, signs, C, intercept, k_s, k_v, s, v, step
        )
        joined = nodes[3]
        nodes[3] = NOBODY
        iteration += 1
        if iteration >= until or gap <= leave_at or joined == SCOUT:
            return PAUSED, iteration, gap
