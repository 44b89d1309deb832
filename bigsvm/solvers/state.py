"""All that a training run is: one coefficient, one derivative and one role for each pattern."""

from dataclasses import dataclass, replace

import numpy as np

IDLE, WORKING, SUPPORT = 0, 1, 2  # outside the working set; inside it; inside with alpha > 0


@dataclass
class State:
    """The iterate of `fw` or `mfw`.

    Attributes
    ----------
    alpha : (n,) float64
        A point of the simplex.
    gradient : (n,) float64
        Q alpha.
    role : (n,) int8
        IDLE, WORKING or SUPPORT. In `fw` nothing is idle.
    iteration, passes : int
        Steps taken; passes over the data that kept the gradient up to date.
    gap : float
        g_v - g_s as the last stop test saw it.
    drift : float or None
        Where the gradient was just recomputed from alpha alone: how far the running one was off.
    hot_set, lowest_gap, stalled
        Of the block schedule: the width of its hot sets, which it widens after some passes
        (`stalled`) without a new lowest gap.
    """

    alpha: np.ndarray
    gradient: np.ndarray
    role: np.ndarray
    iteration: int = 0
    passes: int = 0
    gap: float = float("inf")
    drift: float | None = None
    hot_set: int = 0
    lowest_gap: float = float("inf")
    stalled: int = 0

    @classmethod
    def at_vertex(
        cls, initial: int, column: np.ndarray, algorithm: str, hot_set: int = 0
    ) -> "State":
        """Start from one pattern; `column` is its column of Q."""
        alpha = np.zeros(len(column))
        alpha[initial] = 1.0
        role = np.full(len(column), WORKING if algorithm == "fw" else IDLE, np.int8)
        role[initial] = SUPPORT
        return cls(alpha, column, role, hot_set=hot_set)

    def of(self, index: np.ndarray) -> "State":
        """The same iterate of some patterns alone."""
        return State(self.alpha[index], self.gradient[index], self.role[index], self.iteration)

    def with_part(self, index: np.ndarray, part: "State") -> "State":
        """A copy in which some patterns have gone ahead; the gradient is left behind."""
        ahead = replace(self, alpha=self.alpha.copy(), role=self.role.copy())
        ahead.alpha[index], ahead.role[index] = part.alpha, part.role
        ahead.iteration, ahead.gap, ahead.drift = part.iteration, part.gap, None
        return ahead

    @property
    def nbytes(self) -> int:
        return self.alpha.nbytes + self.gradient.nbytes + self.role.nbytes

    @property
    def n_support(self) -> int:
        return int(np.count_nonzero(self.role == SUPPORT))

    @property
    def n_working(self) -> int:
        return int(np.count_nonzero(self.role))

    @property
    def objective(self) -> float:
        return 0.5 * float(np.dot(self.alpha, self.gradient))
