"""The re-weighted SVM: solve, ask of each pattern the margin its coefficient speaks for, again.

As in the paper: round k solves the weighted SVM of weights t; then t_i = f(a_i), with f monotone
and between a floor and a ceiling. A coefficient has no size of its own (it shrinks as patterns
are added), so f is of r_i = a_i / (mean of the positive a).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from bigsvm.solvers.problem import Problem
from bigsvm.solvers.state import State

# Each is 0 at 0 and rises; `tanh` saturates by itself, the others at the ceiling.
FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "identity": lambda r: r,
    "sqrt": np.sqrt,
    "log": lambda r: np.log2(1 + r),
    "tanh": np.tanh,
}
# A smaller margin is none: its pattern's numbers would drown in rounding.
_NONE = 1e-6


@dataclass(frozen=True)
class Reweighting:
    """How often, and by which function.

    Attributes
    ----------
    rounds : int
        Problems solved in all; 1 is the SVM without weights.
    function : str
        One of FUNCTIONS.
    floor, ceiling : float
        Weights below and above are brought to these. A floor of 0 leaves patterns without a
        coefficient out for good.
    """

    rounds: int
    function: str
    floor: float
    ceiling: float

    def margin(self, a: np.ndarray) -> np.ndarray:
        """The weights t that coefficients a lead to."""
        margin = FUNCTIONS[self.function](a / a[a > 0].mean())
        np.clip(margin, self.floor, self.ceiling, out=margin)
        margin[margin < _NONE] = 0.0
        return margin

    def next_round(self, problem: Problem, solved: State) -> State:
        """Re-weight `problem`, and begin it where the last round ended."""
        a = solved.alpha * np.abs(problem.signs)
        margin = self.margin(a)
        margin[problem.signs == 0] = 0.0  # the floor must not bring them back
        problem.set_margins(margin)
        a *= margin
        a /= a.sum()
        begun = problem.state_at(a)
        return replace(
            begun,
            iteration=solved.iteration,
            passes=solved.passes + 1,
            round=solved.round + 1,
            margin=margin,
        )
