"""More than two classes: a problem for each, that class against the rest, on shared kernel values.

What a class comes to does not depend on the others: it ends at the very coefficients that training
it alone against the rest gives. What they share is the kernel: a sum with a coefficient of 0 in it
is the same bits as without.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from bigsvm.backends import Backend
from bigsvm.backends.gathered import Gathered
from bigsvm.preparation.labels import signs_of
from bigsvm.solvers.class_states import ClassStates
from bigsvm.solvers.hot_set import Wanted
from bigsvm.solvers.problem import ROWS, Problem, Verified, column_of, largest_difference
from bigsvm.solvers.stop_rule import StopRule


class OneVsRest:
    """The problems of all classes.

    Parameters
    ----------
    backend : Backend
        Serves the kernel.
    codes : (n,) integers
        The class of each pattern, from 0.
    count : int
        Of the classes.
    C, algorithm, stop_rule, margin, intercept
        See `Problem`; the same for all.

    Attributes
    ----------
    classes : list of Problem
    """

    def __init__(
        self,
        backend: Backend,
        codes: np.ndarray,
        count: int,
        C: float | np.ndarray,
        algorithm: str,
        stop_rule: StopRule,
        margin: np.ndarray | None = None,
        intercept: float = 0.0,
    ) -> None:
        self.backend = backend
        self.intercept = float(intercept)
        what = (C, algorithm, stop_rule, margin, intercept)
        self.classes = [Problem(backend, signs_of(codes, k), *what) for k in range(count)]

    @property
    def n_sums(self) -> int:
        """How many sums a pass makes of every kernel value."""
        return len(self.classes)

    def start(self, initial: int, hot_set: int = 0) -> ClassStates:
        """The states with all weight on one pattern; one kernel column serves all classes."""
        initial = self.classes[0].taking_part(initial)  # a weight of 0 concerns all classes
        column = column_of(initial, self.backend)
        states = [problem.start_at(initial, column, hot_set) for problem in self.classes]
        for problem, state in zip(self.classes, states, strict=True):
            state.gap, _ = problem.stop_test(state, state.gradient)
        return ClassStates(states)

    def gradients(self, wanted: Mapping[int, Wanted]) -> dict[int, np.ndarray]:
        """What each class (by its number) wants of a pass; the pass is made once for all.

        Each result is the same bits as if it were the only one. More rows than fit are an exception
        to both: what is wanted afresh then takes a pass of its own, in pieces.
        """
        rows = np.unique(np.concatenate([w.index for w in wanted.values()]))
        afresh = {k: w for k, w in wanted.items() if w.afresh}
        if len(rows) <= ROWS or not afresh:
            return self._gradients(wanted, [rows])
        changes = {k: w for k, w in wanted.items() if not w.afresh}
        found = self.gradients(changes) if changes else {}
        rows = np.unique(np.concatenate([w.index for w in afresh.values()]))
        pieces = [rows[start : start + ROWS] for start in range(0, len(rows), ROWS)]
        return found | self._gradients(afresh, pieces)

    def _gradients(
        self, wanted: Mapping[int, Wanted], pieces: list[np.ndarray]
    ) -> dict[int, np.ndarray]:
        sums = self._sums(wanted, pieces[0])
        for rows in pieces[1:]:
            sums += self._sums(wanted, rows)
        return {
            k: self.classes[k].of_product(products, w.index, w.alpha)
            for products, (k, w) in zip(sums, wanted.items(), strict=True)
        }

    def _sums(self, wanted: Mapping[int, Wanted], rows: np.ndarray) -> np.ndarray:
        """The kernel products (class, pattern) with what is wanted of the patterns `rows`."""
        if len(rows) == 0:
            return np.zeros((len(wanted), self.backend.n))
        coef = np.zeros((len(rows), len(wanted)))
        for column, (k, w) in enumerate(wanted.items()):
            here = np.isin(w.index, rows, assume_unique=True)
            index, alpha = w.index[here], w.alpha[here]
            coef[np.searchsorted(rows, index), column] = self.classes[k].dual_coef(index, alpha)
        gathered = Gathered(self.backend, rows, self.backend.rows_at_once)
        return self.backend.matvec(gathered, coef)

    def relative_gap(self, states: ClassStates) -> float:
        """The largest of all classes; see `Problem`."""
        each = zip(self.classes, states.classes, strict=True)
        return max(problem.relative_gap(state) for problem, state in each)

    def coefficients(self, states: ClassStates) -> tuple[np.ndarray, np.ndarray]:
        """The support vectors of all classes, and what each decision multiplies them with.

        (classes, m): each in units of its margin, or the classes could not be compared; and all
        times the smallest of them, so that they add up to 1 at most, as those of two classes do.
        """
        support = states.support()
        levels = [states.level(k) for k in range(len(self.classes))]
        coef = np.empty((len(self.classes), len(support)))
        for k, problem in enumerate(self.classes):
            alpha = states.now(k).alpha[support]
            coef[k] = problem.dual_coef(support, alpha) * (min(levels) / levels[k])
        return support, coef

    def verified(self, states: ClassStates, final: ClassStates) -> Verified:
        """Recompute all gradients of `final` from its alpha, in one pass.

        For a class that was ahead, the drift is that of its hot set: no other derivative was known.
        """
        ends = [final.now(k) for k in range(len(self.classes))]
        wanted = {}
        for k, state in enumerate(ends):
            if state.drift is None:
                support = np.flatnonzero(state.alpha)
                wanted[k] = Wanted(support, state.alpha[support], afresh=True)
        for k, gradient in (self.gradients(wanted) if wanted else {}).items():
            known = final.away[k].part.gradient if k in final.away else ends[k].gradient
            there = gradient[final.away[k].hot.index] if k in final.away else gradient
            drift = largest_difference(there, known)
            ends[k] = replace(ends[k], gradient=gradient, drift=drift)
        tests = [
            problem.stop_test(state, state.gradient)
            for problem, state in zip(self.classes, ends, strict=True)
        ]
        closed = {k for k, (_, may_end) in enumerate(tests) if may_end}
        gap = max(gap for gap, _ in tests)
        recomputed = ClassStates(ends, states.passes, closed=closed)
        return Verified(recomputed, gap, len(closed) == len(ends))
