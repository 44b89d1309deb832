"""Algorithms 1 and 2 of the paper in plain numpy, on the whole matrix Q.

The line numbers are the paper's: Alaiz and Suykens, "Modified Frank-Wolfe Algorithm for Enhanced
Sparsity in Support Vector Machine Classifiers". `steps.py` is the same loop compiled, on kernel
columns that are computed on demand; the tests compare the two, node by node.

Three things differ from the paper's listing. The away node is looked for in the support, since one
without weight allows no step. A pattern joins at a derivative of 0 or less, not only below 0; see
`steps.py`. And the stop test comes before the step, so that the last step is one that was needed.
"""

from dataclasses import dataclass, field

import numpy as np


@dataclass
class Reference:
    """A run of the reference, with the nodes of every step.

    Attributes
    ----------
    alpha, gradient : (n,) float64
        The last iterate, and Q alpha.
    working : (n,) bool
        The working set.
    joined, forward, away : list of int
        The pattern that joined in each iteration (-1: none), and the two nodes of its step.
    """

    alpha: np.ndarray
    gradient: np.ndarray
    working: np.ndarray
    joined: list[int] = field(default_factory=list)
    forward: list[int] = field(default_factory=list)
    away: list[int] = field(default_factory=list)


def train(
    q: np.ndarray,
    algorithm: str = "mfw",
    tolerance: float = 1e-5,
    initial: int = 0,
    max_iterations: int = 10**6,
) -> Reference:
    """Minimise 1/2 a'Qa on the simplex, by the paper's absolute stop rule.

    Parameters
    ----------
    q : (n, n) float64
        y_i y_j k(x_i, x_j), plus 1/C on the diagonal.
    algorithm : {"fw", "mfw"}
        Algorithm 1, or Algorithm 2, which has a working set.
    tolerance : float
        The epsilon of the paper.
    initial : int
        The first pattern.
    max_iterations : int
    """
    n = len(q)
    alpha = np.zeros(n)
    alpha[initial] = 1.0  # Alg. 1, line 3; Alg. 2, line 4
    g = q[initial].copy()  # Alg. 1, line 4; Alg. 2, line 5
    working = np.full(n, algorithm == "fw")  # Algorithm 1 works on all patterns
    working[initial] = True  # Alg. 2, line 3
    run = Reference(alpha, g, working)
    for _ in range(max_iterations):
        joined = -1  # Alg. 2, line 8
        if not working.all():  # Alg. 2, line 7
            u = int(np.argmin(np.where(working, np.inf, g)))  # Alg. 2, line 9
            if g[u] <= 0:  # Alg. 2, line 10
                working[u] = True  # Alg. 2, line 11
                joined = u  # Alg. 2, line 12
        s = int(np.argmin(np.where(working, g, np.inf)))  # Alg. 1, line 6; Alg. 2, line 15
        v = int(np.argmax(np.where(alpha > 0, g, -np.inf)))  # Alg. 1, line 7; Alg. 2, line 16
        gap = g[v] - g[s]  # Alg. 1, line 9; Alg. 2, line 18
        if gap <= tolerance and joined < 0:  # Alg. 1, line 13; Alg. 2, line 22
            break
        step = min(gap / (q[s, s] + q[v, v] - 2 * q[s, v]), alpha[v])  # Alg. 1, line 10; 2, 19
        alpha[s] += step  # Alg. 1, line 11; Alg. 2, line 20
        alpha[v] -= step
        g += step * (q[s] - q[v])  # Alg. 1, line 12; Alg. 2, line 21
        run.joined.append(joined)
        run.forward.append(s)
        run.away.append(v)
    return run
