"""The iterate: one coefficient, one derivative and one role for each pattern."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from bigsvm.core.compiled import njit

# Not drawn, or set aside, by the block schedule; takes no part (weight 0, or held out of
# training); outside the working set; inside it; inside with alpha > 0. Idle and excluded patterns
# differ, because an idle one joins at a derivative of 0, and that is the derivative of a pattern
# without weight.
UNSEEN, EXCLUDED, IDLE, WORKING, SUPPORT = -2, -1, 0, 1, 2


@njit(cache=True, nogil=True)
def quad_form(alpha, gradient):  # type: ignore[no-untyped-def]
    """a'Qa, summed in the order of the patterns.

    Every stop test uses this function: if their sums differed in the last bit, one test could
    accept forever what another rejects. Not BLAS: its bits differ between machines, and after every
    call its threads spin for a tenth of a second on the cores that ours need.
    """
    total = 0.0
    for i in range(len(alpha)):
        if alpha[i] > 0:
            total += alpha[i] * gradient[i]
    return total


def relative_gap(gap: float, margin: float) -> float:
    """The gap as a share of the margin a'Qa; infinite where rounding has left none."""
    return gap / margin if margin > 0 else (0.0 if gap == 0 else float("inf"))


def pieces(n: int) -> Iterator[slice]:
    """All of n patterns, a million at a time.

    A temporary array of all patterns would be as large as what a run keeps of them.
    """
    for start in range(0, n, 2**20):
        yield slice(start, min(start + 2**20, n))


@dataclass
class PartialSolve:
    """A subproblem of the block schedule between two of its cells, from which a run can resume.

    Attributes
    ----------
    index : (m,) int64
        The patterns of the subproblem.
    alpha, gradient, role : (m,) arrays
        Its iterate. These are the arrays that are being worked on, valid during an event.
    growth, quad_form : float
        The sum of all alpha, and a'Qa; see `BlockSolve`.
    gap : float
    iteration, sweep, cells : int
        Steps taken; the division into cells, and how many of them are solved.
    """

    index: np.ndarray
    alpha: np.ndarray
    gradient: np.ndarray
    role: np.ndarray
    growth: float
    quad_form: float
    gap: float
    iteration: int
    sweep: int
    cells: int


@dataclass
class State:
    """The iterate of `fw` or `mfw`.

    Attributes
    ----------
    alpha : (n,) float64
        A point of the simplex. With weights t it is t_i a_i; see `Problem`.
    gradient : (n,) float64
        Q alpha.
    role : (n,) int8
        UNSEEN, EXCLUDED, IDLE, WORKING or SUPPORT. In `fw` nothing is idle.
    iteration, passes : int
        Steps taken; passes over the data that kept the gradient up to date.
    gap : float
        g_v - g_s as the last stop test saw it.
    drift : float or None
        Where the gradient was just recomputed from alpha alone: how far the running one was off.
    sample : int
        Of the block schedule: how many patterns were drawn, while it works on a sample; 0 when all
        are in play; n when all were drawn and those far from joining are set aside. The derivatives
        of patterns that are not in play are not up to date.
    waited : int or None
        Of the block schedule: how many idle patterns waited to join before the last subproblem,
        if it was over the same patterns and left most of its candidates idle.
    round : int
        Of a re-weighted SVM, counted from 1.
    margin : (n,) float64 or None
        The weights that the rounds before have led to.
    partial : PartialSolve or None
        Of the block schedule: the subproblem that has been solved in part since the last pass.
    """

    alpha: np.ndarray
    gradient: np.ndarray
    role: np.ndarray
    iteration: int = 0
    passes: int = 0
    gap: float = float("inf")
    drift: float | None = None
    sample: int = 0
    waited: int | None = None
    round: int = 1
    margin: np.ndarray | None = None
    partial: PartialSolve | None = None

    def of(self, index: np.ndarray) -> "State":
        """The same iterate of some patterns alone."""
        return State(self.alpha[index], self.gradient[index], self.role[index], self.iteration)

    def with_part(self, index: np.ndarray, part: "State") -> "State":
        """A copy with a part that is ahead; its gradient is up to date in that part only."""
        ahead = replace(
            self, alpha=self.alpha.copy(), gradient=self.gradient.copy(), role=self.role.copy()
        )
        ahead.alpha[index], ahead.role[index] = part.alpha, part.role
        ahead.gradient[index] = part.gradient
        ahead.iteration, ahead.gap, ahead.drift = part.iteration, part.gap, None
        ahead.partial = None
        return ahead

    @property
    def nbytes(self) -> int:
        arrays = (self.alpha, self.gradient, self.role, self.margin)
        return sum(array.nbytes for array in arrays if array is not None)

    @property
    def resumable_iteration(self) -> int:
        """The steps that a run does not take again when it resumes from this state."""
        return self.iteration if self.partial is None else self.partial.iteration

    @property
    def n_support(self) -> int:
        return int(np.count_nonzero(self.role == SUPPORT))

    @property
    def n_working(self) -> int:
        return int(np.count_nonzero(self.role > IDLE))

    @property
    def quad_form(self) -> float:
        """a'Qa, the margin: about what the decision values of support vectors are."""
        return float(quad_form(self.alpha, self.gradient))

    @property
    def relative_gap(self) -> float:
        """gap / a'Qa, what the relative stop rule compares with its tolerance."""
        return relative_gap(self.gap, self.quad_form)

    @property
    def objective(self) -> float:
        return 0.5 * self.quad_form
