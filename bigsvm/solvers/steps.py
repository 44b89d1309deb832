"""The steps of the paper's loop, compiled: on kernel columns that are at hand.

Two departures from the paper. An idle pattern joins at a derivative of 0 or less, where the paper
has: below 0. That differs only where the derivative is exactly 0, so where the model cannot decide.
It matters when a row has a twin with the opposite label and is the first pattern: the first step
puts 1/2 on each, the decision is 0 everywhere, and by the paper's rule nothing would ever join
(a9a has 4,150 such rows). And the stop test may be relative to the margin; see `StopRule`.
"""

import numpy as np

from bigsvm.core.compiled import njit
from bigsvm.solvers.nodes import three_of_q, update_gradient
from bigsvm.solvers.state import SUPPORT, WORKING, quad_form

CLOSED, MISSING, PAUSED, OVERFLOWED = range(4)  # why they ended
JOINED_NONE, JOINED_ONE = range(2)  # in this iteration
# How far the running a'Qa may be off from its sum before a stop test would be missed.
_CLOSE = 1.001


@njit(cache=True, nogil=True)
def steps(  # type: ignore[no-untyped-def]
    alpha,
    gradient,
    role,
    signs,
    C,
    intercept,
    relative,
    absolute,
    columns,
    slot,
    last_used,
    now,
    nodes,
    iteration,
    until,
):
    """Section 1 of the design, until something is wanted of the caller: why, iteration, gap.

    `nodes` are idle, toward, away, and who has joined in this iteration; columns are last used
    `now`, as the cache counts. `relative` and `absolute` are those of a `StopRule`.

    The relative rule decides by a'Qa as summed over the support, so that the last iteration does
    not depend on where earlier calls ended. That sum takes a sweep over all patterns, so each step
    only updates an estimate, which says when the sum is worth computing.
    """
    estimate = summed = quad_form(alpha, gradient) if relative > 0 else 0.0
    while True:
        idle = nodes[0]
        if idle >= 0 and gradient[idle] <= 0 and nodes[3] == JOINED_NONE:
            role[idle] = WORKING
            nodes[3] = JOINED_ONE
            if (gradient[idle], idle) < (gradient[nodes[1]], nodes[1]):
                nodes[1] = idle
        s, v = nodes[1], nodes[2]
        gap = gradient[v] - gradient[s]
        if not np.isfinite(gap):
            return OVERFLOWED, iteration, gap
        # In a hot set all weight may come to lie on one pattern, which then has nobody to give to.
        if s == v:
            return CLOSED, iteration, gap
        if nodes[3] == JOINED_NONE:
            # Updates keep the absolute error of the estimate, so that it needs a new sum after the
            # quadratic form itself has become smaller.
            near = gap <= _CLOSE * relative * max(estimate, 0.0)
            if relative > 0 and (near or estimate < 0.5 * summed):
                estimate = summed = quad_form(alpha, gradient)
            if gap <= relative * max(estimate, 0.0) + absolute:
                return CLOSED, iteration, gap
        if slot[s] < 0 or slot[v] < 0:
            return MISSING, iteration, gap
        k_s, k_v = columns[slot[s]], columns[slot[v]]
        last_used[slot[s]] = last_used[slot[v]] = now
        q_ss, q_vv, q_sv = three_of_q(signs, C, intercept, k_s, k_v, s, v)
        curvature = q_ss + q_vv - 2 * q_sv
        step = min(gap / curvature, alpha[v])
        if not step > 0:
            return OVERFLOWED, iteration, gap
        estimate += step * (step * curvature - 2 * gap)
        alpha[s] += step
        alpha[v] -= step
        role[s] = SUPPORT
        if alpha[v] == 0:
            role[v] = WORKING
        nodes[0], nodes[1], nodes[2] = update_gradient(
            gradient, role, signs, C, intercept, k_s, k_v, s, v, step
        )
        nodes[3] = JOINED_NONE
        iteration += 1
        if iteration >= until:
            return PAUSED, iteration, gap
