"""The optimisation problem a solver is given."""

from copy import copy
from dataclasses import replace

import numpy as np

from bigsvm.backends import PRODUCT_ROWS, Backend
from bigsvm.backends.products import GatheredRows
from bigsvm.core.arrays import RowChunks
from bigsvm.core.errors import UserError
from bigsvm.core.stop_rule import StopRule
from bigsvm.solvers.nodes import pairwise_gap
from bigsvm.solvers.state import (
    EXCLUDED,
    IDLE,
    SUPPORT,
    UNSEEN,
    WORKING,
    State,
    pieces,
    quad_form,
    relative_gap,
)


class Problem:
    """Minimise 1/2 a'Qa over a >= 0, sum_i t_i a_i = 1, with Q = y y' (k + b0) + diag(1 / C_i).

    What is solved is the plain problem of alpha_i = t_i a_i, which lies on the simplex: its signs
    are y_i / t_i instead of y_i, its C_i is that of the pattern times t_i^2. Without weights it is
    the same problem in the same bits.

    Parameters
    ----------
    backend : Backend
        Serves the kernel.
    y : (n,) int8
        Labels, -1 and +1.
    C : float or (n,) float64
        One for all, or one for each pattern (sample weights, class weights); where it is 0 the
        pattern takes no part.
    algorithm : {"fw", "mfw"}
    stop_rule : StopRule
    margin : (n,) float64, optional
        The weights t of a weighted SVM: the margin asked of each pattern, in units of the common
        one. Default: 1. Where it is 0 the pattern takes no part.
    intercept : float
        The b0 added to the kernel; the decision gets b0 sum_i a_i y_i.

    Attributes
    ----------
    signs : (n,) int8, or float64 where there are weights
        y_i / t_i; 0 for a pattern that takes no part, and whose role is EXCLUDED.
    C : float or (n,) float64
        As seen from alpha: C_i t_i^2.
    """

    def __init__(
        self,
        backend: Backend,
        y: np.ndarray,
        C: float | np.ndarray,
        algorithm: str,
        stop_rule: StopRule,
        margin: np.ndarray | None = None,
        intercept: float = 0.0,
    ) -> None:
        self.backend = backend
        self.y = y
        self.algorithm = algorithm
        self.stop_rule = stop_rule
        self.intercept = float(intercept)
        self._C_given = C
        self.signs: np.ndarray
        self.C: float | np.ndarray
        self.set_margins(margin)

    def set_margins(self, margin: np.ndarray | None) -> None:
        """Ask another margin of each pattern; None asks the same of all."""
        if margin is None and np.ndim(self._C_given) == 0:
            self.signs, self.C = self.y, self._C_given
            return
        signs = self.y.astype(np.float64)
        C = self._C_given
        if margin is not None:
            np.divide(signs, margin, out=signs, where=margin > 0)
            C = C * margin
            C *= margin
        signs[C == 0] = 0.0
        if not signs.any():
            raise UserError("no pattern has a weight above 0; give some of them one")
        self.signs, self.C = signs, C

    def part(self, index: np.ndarray, backend: Backend) -> "Problem":
        """The same problem of some patterns alone, which `backend` serves."""
        part = copy(self)
        part.backend = backend
        part.y = self.y[index]
        part.signs = part.y if self.signs is self.y else self.signs[index]
        part.C = self.C[index] if isinstance(self.C, np.ndarray) else self.C
        return part

    def start(self, initial: int) -> State:
        """The state with all weight on one pattern: `initial`, or the next that takes part."""
        initial = self.taking_part(initial)
        return self.start_at(initial, column_of(initial, self.backend))

    def taking_part(self, initial: int) -> int:
        """The pattern `initial`, or the next that takes part."""
        if self.signs[initial] != 0:
            return initial
        taking_part = np.flatnonzero(self.signs)
        return int(taking_part[np.searchsorted(taking_part, initial) % len(taking_part)])

    def start_at(self, initial: int, column: np.ndarray) -> State:
        """The state with all weight on one pattern, given its kernel column."""
        q = column.astype(np.float64)
        q += self.intercept
        q *= self.signs
        q *= float(self.signs[initial])
        q[initial] += 1.0 / self._C_of(initial)
        alpha = np.zeros(len(q))
        alpha[initial] = 1.0
        return State(alpha, q, self._roles(alpha))

    def state_at(self, alpha: np.ndarray) -> State:
        """The state at a point of the simplex; in `mfw`, only its support is in the working set."""
        return State(alpha, self.gradient(alpha), self._roles(alpha))

    def gradient(self, alpha: np.ndarray) -> np.ndarray:
        """Q alpha, computed from alpha alone."""
        support = np.flatnonzero(alpha)
        return self.gradient_at(support, alpha[support])

    def gradient_at(self, support: np.ndarray, alpha: np.ndarray) -> np.ndarray:
        """Q alpha, given the support and its alpha."""
        total = self.gradient_change(support[:PRODUCT_ROWS], alpha[:PRODUCT_ROWS])
        for start in range(PRODUCT_ROWS, len(support), PRODUCT_ROWS):
            some = slice(start, start + PRODUCT_ROWS)
            total += self.gradient_change(support[some], alpha[some])
        return total

    def gradient_change(
        self, index: np.ndarray, change: np.ndarray, rows: RowChunks | None = None
    ) -> np.ndarray:
        """What ``alpha[index] += change`` adds to the gradient; `rows` are those patterns."""
        rows = (
            GatheredRows(self.backend, index, self.backend.rows_at_once) if rows is None else rows
        )
        coef = self.dual_coef(index, change)
        return self.of_product(self.backend.matvec(rows, coef), index, change)

    def gradient_change_of(
        self,
        others: np.ndarray,
        backend: Backend,
        index: np.ndarray,
        change: np.ndarray,
        rows: RowChunks,
    ) -> np.ndarray:
        """`gradient_change` of the patterns `others` alone, which `backend` serves.

        None of them is in `index`.
        """
        coef = self.dual_coef(index, change)
        product = backend.matvec(rows, coef)
        if self.intercept:
            product += self.intercept * coef.sum()
        return self.signs[others] * product

    def of_product(self, product: np.ndarray, index: np.ndarray, change: np.ndarray) -> np.ndarray:
        """`gradient_change`, in place of the kernel product with ``dual_coef(index, change)``."""
        if self.intercept:
            product += self.intercept * self.dual_coef(index, change).sum()
        product *= self.signs
        product[index] += change / self._C_of(index)
        return product

    def dual_coef(self, index: np.ndarray, alpha: np.ndarray) -> np.ndarray:
        """a_i y_i of the patterns `index`, of which alpha is given."""
        return alpha * self.signs[index]

    def stop_test(self, state: State, gradient: np.ndarray) -> tuple[float, bool]:
        """The gap at `state`'s point under `gradient`, and whether the run may end there."""
        gap, has_violator = pairwise_gap(gradient, state.role)
        threshold = self.stop_rule.threshold(quad_form(state.alpha, gradient))
        return gap, gap <= threshold and not has_violator

    def relative_gap(self, state: State) -> float:
        """gap / a'Qa under the gradient of `state`, which is that of its point."""
        return relative_gap(self.stop_test(state, state.gradient)[0], state.quad_form)

    def recomputed(
        self, state: State, gradient: np.ndarray, known: tuple[np.ndarray, np.ndarray] | None = None
    ) -> State:
        """The state under a gradient computed from alpha alone.

        `known` are the patterns whose running derivatives were up to date, and those derivatives;
        by default all. All patterns are in play then, also where it was at work on a sample.
        """
        if known is None:
            drift = largest_difference(gradient, state.gradient, state.role)
        else:
            index, running = known
            drift = largest_difference(gradient[index], running, state.role[index])
        role = state.role
        if state.sample:
            idle = WORKING if self.algorithm == "fw" else IDLE
            role = np.where(role == UNSEEN, np.int8(idle), role)
        return replace(state, gradient=gradient, drift=drift, role=role, sample=0, partial=None)

    def _roles(self, alpha: np.ndarray) -> np.ndarray:
        role = np.full(len(alpha), WORKING if self.algorithm == "fw" else IDLE, np.int8)
        role[self.signs == 0] = EXCLUDED
        role[alpha > 0] = SUPPORT
        return role

    def _C_of(self, index: int | np.ndarray) -> float | np.ndarray:
        return self.C[index] if isinstance(self.C, np.ndarray) else self.C


def largest_difference(a: np.ndarray, b: np.ndarray, role: np.ndarray) -> float:
    """The largest |a_i - b_i| of the patterns in play."""
    largest = 0.0
    for piece in pieces(len(a)):
        difference = np.abs(a[piece] - b[piece])
        difference[role[piece] == UNSEEN] = 0.0
        largest = max(largest, float(difference.max()))
    return largest


def column_of(index: int, backend: Backend) -> np.ndarray:
    """The kernel column of one pattern."""
    column = np.empty((1, backend.n), np.float32)
    backend.columns(backend.gather(np.array([index])), column, np.array([0]))
    return column[0]
