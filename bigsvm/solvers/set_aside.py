"""Patterns set aside: idle ones too far from joining are left out of passes, as LIBSVM shrinks.

Towards the end of a run the derivatives fall by less and less from pass to pass. Once the problem
of the patterns that are left in play is solved, all are in play again, and their gradient is
computed from scratch, as a run has to end with.
"""

import numpy as np

from bigsvm.solvers.order import Difference, k_smallest
from bigsvm.solvers.state import IDLE, SUPPORT, UNSEEN, State

# What holds for all patterns but this share of them is what can be expected; the others are found
# by the last pass.
FEW = 1 / 500


def usual_fall(state: State, gradient: np.ndarray, idle: int) -> float:
    """By how much a pass over all patterns lowers the derivatives of all idle ones but few.

    `idle` is the role of those patterns, `gradient` that after the pass.
    """
    change = Difference(gradient, state.gradient)
    known = state.role == idle
    if state.sample == len(state.role):
        known |= state.role == UNSEEN  # set aside: as of the last pass over all
    few = k_smallest(change, known, 1 + int(FEW * np.count_nonzero(known)))
    return max(0.0, -float(change[few].max(initial=-np.inf)))


def fall_to_come(state: State) -> float:
    """By how much the derivatives of all support vectors but few still have to fall.

    Those of the others will change by about as much.
    """
    support = state.role == SUPPORT
    count = 1 + int(FEW * np.count_nonzero(support))
    highest = k_smallest(state.gradient, support, count, sign=-1)
    return float(state.gradient[highest].min()) - state.quad_form


def set_aside(state: State, idle: int, bar: float, distance: float) -> None:
    """Leave patterns of the role `idle` out whose derivatives exceed the bar by that distance.

    Not while many are below it and wait to join, which changes all derivatives. Worth it where it
    halves a pass.
    """
    candidates = state.role == idle
    n_playing = np.count_nonzero(state.role >= IDLE)
    if np.count_nonzero(candidates & (state.gradient <= bar)) > FEW * n_playing:
        return
    far = candidates & (state.gradient > bar + distance)
    if np.count_nonzero(far) >= n_playing / 2:
        state.role[far] = UNSEEN
        state.sample = len(state.role)
