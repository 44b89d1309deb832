"""The optimisation problem a solver is given."""

from dataclasses import dataclass

import numpy as np

from bigsvm.backends import Backend
from bigsvm.solvers.state import IDLE, SUPPORT, State

# Rows gathered at once, whatever the memory limit: the order of a sum is part of its bits.
_ROWS = 2**15


@dataclass(frozen=True)
class Problem:
    """Minimise 1/2 a'Qa over the simplex, with Q = y y' k + I/C.

    Attributes
    ----------
    backend : Backend
        Serves the kernel.
    y : (n,) int8
        Labels, -1 and +1.
    C : float
    algorithm : {"fw", "mfw"}
    tolerance : float
        Stop at a gap no larger than this.
    """

    backend: Backend
    y: np.ndarray
    C: float
    algorithm: str
    tolerance: float

    def start(self, initial: int, hot_set: int = 0) -> State:
        """The state with all weight on one pattern."""
        column = np.empty((1, self.backend.n), np.float32)
        self.backend.columns(self.backend.gather(np.array([initial])), column, np.array([0]))
        q = column[0].astype(np.float64)
        q *= self.y
        q *= float(self.y[initial])
        q[initial] += 1.0 / self.C
        return State.at_vertex(initial, q, self.algorithm, hot_set)

    def gradient(self, alpha: np.ndarray) -> np.ndarray:
        """Q alpha, computed from alpha alone."""
        support = np.flatnonzero(alpha)
        total = self.gradient_change(support[:_ROWS], alpha[support[:_ROWS]])
        for start in range(_ROWS, len(support), _ROWS):
            some = support[start : start + _ROWS]
            total += self.gradient_change(some, alpha[some])
        return total

    def gradient_change(
        self, index: np.ndarray, change: np.ndarray, rows: np.ndarray | None = None
    ) -> np.ndarray:
        """What ``alpha[index] += change`` adds to the gradient; `rows` are those patterns."""
        rows = self.backend.gather(index) if rows is None else rows
        update = self.backend.matvec(rows, change * self.y[index])
        update *= self.y
        update[index] += change / self.C
        return update

    def stop_test(self, state: State, gradient: np.ndarray) -> tuple[float, bool]:
        """The gap at `state`'s point under `gradient`, and whether the run may end there."""
        below_zero = gradient < 0
        in_play = (state.role != IDLE) | below_zero  # an idle pattern below zero would join
        lowest = np.min(gradient, where=in_play, initial=np.inf)
        highest = np.max(gradient, where=state.role == SUPPORT, initial=-np.inf)
        someone_joins = bool(((state.role == IDLE) & below_zero).any())
        gap = float(highest - lowest)
        return gap, gap <= self.tolerance and not someone_joins
