"""The weighted SVM, solved by the package: sum t_i a_i = 1 in place of sum a_i = 1."""

import numpy as np

from bigsvm.backends.in_memory import InMemoryBackend
from bigsvm.core.stop_rule import StopRule
from bigsvm.kernels import Kernel
from bigsvm.solvers.column_cache import space_for_columns
from bigsvm.solvers.joint import JointProblem
from bigsvm.solvers.problem import Problem
from bigsvm.solvers.schedule import ExactSchedule

STOP_RULE = StopRule(absolute=1e-9)


def coefficients(x: np.ndarray, y: np.ndarray, C: float, weights: np.ndarray) -> np.ndarray:
    """The coefficients a of the weighted SVM, linear kernel; all weights above 0."""
    backend = InMemoryBackend(np.ascontiguousarray(x, np.float32), Kernel("linear"))
    problem = JointProblem([Problem(backend, y.astype(np.int8), C, "fw", STOP_RULE, weights)])
    state = problem.start(0)
    for _ in ExactSchedule(problem, space_for_columns(2**24, len(y))).run(state):
        pass
    return (
        state.classes[0].alpha / weights
    )  # the solver's alpha is t_i a_i, which lies on the simplex
