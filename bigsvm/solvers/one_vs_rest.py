"""More than two classes: a problem for each, that class against the rest, on shared kernel values.

What a class comes to does not depend on the others: it ends at the very coefficients that training
it alone against the rest gives. What they share is the kernel: a sum with a coefficient of 0 in it
is the same bits as without.
"""

from collections.abc import Mapping

import numpy as np

from bigsvm.backends import PRODUCT_ROWS, Backend
from bigsvm.backends.products import GatheredRows
from bigsvm.core.labels import one_vs_rest_signs
from bigsvm.core.stop_rule import StopRule
from bigsvm.solvers.block_solve import GradientRequest
from bigsvm.solvers.class_states import ClassStates
from bigsvm.solvers.problem import Problem, Verified, column_of


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
        self.classes = [Problem(backend, one_vs_rest_signs(codes, k), *what) for k in range(count)]

    @property
    def n_outputs(self) -> int:
        """How many sums a pass makes of every kernel value."""
        return len(self.classes)

    def start(self, initial: int) -> ClassStates:
        """The states with all weight on one pattern; one kernel column serves all classes."""
        initial = self.classes[0].taking_part(initial)  # a weight of 0 concerns all classes
        column = column_of(initial, self.backend)
        states = [problem.start_at(initial, column) for problem in self.classes]
        for problem, state in zip(self.classes, states, strict=True):
            state.gap, _ = problem.stop_test(state, state.gradient)
        return ClassStates(states)

    def gradients(
        self, requests: Mapping[int, GradientRequest], served: Backend | None = None
    ) -> dict[int, np.ndarray]:
        """What each class (by its number) requests of a pass; the pass is made once for all.

        `served` serves the sample that the requests are for, where they are for one. Each result is
        the same bits as if it were the only one. More rows than fit are an exception to both: what
        is requested from scratch then takes a pass of its own, in pieces.
        """
        rows = np.unique(np.concatenate([request.index for request in requests.values()]))
        from_scratch = {k: request for k, request in requests.items() if request.from_scratch}
        if len(rows) <= PRODUCT_ROWS or not from_scratch or served is not None:
            return self._gradients(requests, [rows], served)
        changes = {k: request for k, request in requests.items() if not request.from_scratch}
        found = self.gradients(changes) if changes else {}
        rows = np.unique(np.concatenate([request.index for request in from_scratch.values()]))
        pieces = [rows[start : start + PRODUCT_ROWS] for start in range(0, len(rows), PRODUCT_ROWS)]
        return found | self._gradients(from_scratch, pieces)

    def _gradients(
        self,
        requests: Mapping[int, GradientRequest],
        pieces: list[np.ndarray],
        served: Backend | None = None,
    ) -> dict[int, np.ndarray]:
        sums = self._sums(requests, pieces[0], served or self.backend)
        for rows in pieces[1:]:
            sums += self._sums(requests, rows, served or self.backend)
        return {
            k: self._gradient(k, request, products, served)
            for products, (k, request) in zip(sums, requests.items(), strict=True)
        }

    def _gradient(
        self, k: int, request: GradientRequest, product: np.ndarray, served: Backend | None
    ) -> np.ndarray:
        problem, index = self.classes[k], request.index
        if served is not None and request.rows is not None:
            problem, index = problem.part(request.rows, served), request.places
        return problem.of_product(product, index, request.alpha)

    def _sums(
        self, requests: Mapping[int, GradientRequest], rows: np.ndarray, served: Backend
    ) -> np.ndarray:
        """The kernel products (class, pattern served) with what is requested of patterns `rows`."""
        if len(rows) == 0:
            return np.zeros((len(requests), served.n))
        coef = np.zeros((len(rows), len(requests)))
        for column, (k, request) in enumerate(requests.items()):
            here = np.isin(request.index, rows, assume_unique=True)
            index, alpha = request.index[here], request.alpha[here]
            coef[np.searchsorted(rows, index), column] = self.classes[k].dual_coef(index, alpha)
        gathered = GatheredRows(self.backend, rows, self.backend.rows_at_once)
        return served.matvec(gathered, coef)

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
        margins = [states.quad_form(k) for k in range(len(self.classes))]
        coef = np.empty((len(self.classes), len(support)))
        for k, problem in enumerate(self.classes):
            alpha = states.now(k).alpha[support]
            coef[k] = problem.dual_coef(support, alpha) * (min(margins) / margins[k])
        return support, coef

    def verified(self, states: ClassStates, final: ClassStates) -> Verified:
        """Recompute all gradients of `final` from its alpha, in one pass.

        For a class that was ahead, the drift is that of its hot set: no other derivative was known.
        """
        ends = [final.now(k) for k in range(len(self.classes))]
        requests = {}
        for k, state in enumerate(ends):
            if state.drift is None:
                support = np.flatnonzero(state.alpha)
                requests[k] = GradientRequest(support, state.alpha[support], from_scratch=True)
        for k, gradient in (self.gradients(requests) if requests else {}).items():
            running = ends[k].gradient
            if k in final.away:
                # Of a class that was ahead, only the derivatives of its hot set were known.
                index, known = final.away[k].up_to_date
                running = gradient.copy()
                running[index] = known
            ends[k] = self.classes[k].recomputed(ends[k], gradient, running)
        tests = [
            problem.stop_test(state, state.gradient)
            for problem, state in zip(self.classes, ends, strict=True)
        ]
        closed = {k for k, (_, converged) in enumerate(tests) if converged}
        gap = max(gap for gap, _ in tests)
        recomputed = ClassStates(ends, states.passes, closed=closed)
        return Verified(recomputed, gap, len(closed) == len(ends))
