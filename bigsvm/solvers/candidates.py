"""Which idle patterns a subproblem includes, so that they may join the working set."""

import numpy as np

from bigsvm.solvers.order import HashOrder, k_smallest


def draw_candidates(
    gradient: np.ndarray,
    idle: np.ndarray,
    bar: float,
    most: int,
    waited: int | None,
) -> np.ndarray:
    """Idle patterns that wait to join, and others near them where those do not get fewer.

    Solving a subproblem lifts the derivatives of those that wait, and most no longer have to join.
    The same change may lower those of others that were left out; they wait at the next pass, the
    first ones at the one after it, and so on, with hardly any of them joining. With some of both in
    one subproblem, a solution is found that suits both. So where most candidates of the last one
    did not join, and still more than half as many wait, as many again are included of those that
    are no farther above the bar than the lowest is below it.

    Parameters
    ----------
    gradient : (n,) float64
    idle : (n,) bool
    bar : float
        The derivative up to which an idle pattern waits to join.
    most : int
        The most to include of those that wait. They are drawn, because the lowest are outliers.
    waited : int or None
        How many waited before the last subproblem, if most of its candidates did not join.

    Returns
    -------
    (q,) int64
        In ascending order.
    """
    waiting = idle & (gradient <= bar)
    order = HashOrder(len(idle))
    chosen = k_smallest(order, waiting, most)
    if waited is None or not len(chosen) or 2 * np.count_nonzero(waiting) <= waited:
        return chosen
    reach = bar + (bar - float(gradient[waiting].min()))
    near = idle & (gradient > bar) & (gradient <= reach)
    return np.union1d(chosen, k_smallest(order, near, len(chosen)))
