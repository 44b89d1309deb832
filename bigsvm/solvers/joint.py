"""The problem of a training and its iterate: K two-class problems that share kernel values.

Two classes are the case K = 1; of more, each class is a problem against the rest. What a class
comes to does not depend on the others: it ends at the very coefficients that training it alone
gives. What they share is the kernel: a sum with a coefficient of 0 in it is the same bits as
without.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from bigsvm.backends import PRODUCT_ROWS, Backend
from bigsvm.backends.products import GatheredRows
from bigsvm.solvers.block_solve import BlockSolve, GradientRequest
from bigsvm.solvers.problem import Problem, column_of
from bigsvm.solvers.state import IDLE, SUPPORT, State


@dataclass
class JointState:
    """One state for each class, as if it were trained alone.

    Attributes
    ----------
    classes : list of State
        A later process can resume from here.
    passes : int
        Over the data; one serves all classes that wait for it.
    ahead : mapping
        Of the block schedule: the subproblems of classes that are ahead of their state.
    closed : set
        The classes that have converged.
    """

    classes: list[State]
    passes: int = 0
    ahead: Mapping[int, BlockSolve] = field(default_factory=dict)
    closed: set[int] = field(default_factory=set)

    def now(self, k: int) -> State:
        """Class k as it is now; where it is ahead this is a copy, its gradient left behind."""
        return self.ahead[k].preview_state if k in self.ahead else self.classes[k]

    def quad_form(self, k: int) -> float:
        """a'Qa of class k now."""
        return self.ahead[k].quad_form_now if k in self.ahead else self.classes[k].quad_form

    def iterations(self, k: int) -> int:
        """The steps that class k has taken."""
        return self.ahead[k].iteration if k in self.ahead else self.classes[k].iteration

    @property
    def iteration(self) -> int:
        """The steps of all classes together."""
        return sum(self.iterations(k) for k in range(len(self.classes)))

    @property
    def resumable_iteration(self) -> int:
        """The steps of all classes that a run does not take again when it resumes from here."""
        return sum(state.resumable_iteration for state in self.classes)

    @property
    def round(self) -> int:
        """Of a re-weighted SVM, counted from 1."""
        return self.classes[0].round

    @property
    def margin(self) -> np.ndarray | None:
        """The weights that the rounds before have led to."""
        return self.classes[0].margin

    def reached(self, limit: int) -> bool:
        """Whether every class that has not converged has taken `limit` steps."""
        going = set(range(len(self.classes))) - self.closed
        return bool(going) and all(self.iterations(k) >= limit for k in going)

    def correct(self, recomputed: "JointState") -> None:
        """Take gradients that were computed from alpha alone: the running ones had drifted."""
        for state, exact in zip(self.classes, recomputed.classes, strict=True):
            state.gradient = exact.gradient

    def role(self, k: int) -> np.ndarray:
        """The roles of the patterns for class k now."""
        role = self.classes[k].role
        if k in self.ahead:
            role = role.copy()
            role[self.ahead[k].index] = self.ahead[k].role
        return role

    def support(self) -> np.ndarray:
        """The patterns in the support of some class, ascending."""
        return np.flatnonzero(self._some(SUPPORT))

    def _some(self, least: int) -> np.ndarray:
        """Which patterns have this role or a higher one for some class."""
        some = np.zeros(len(self.classes[0].role), bool)
        for k in range(len(self.classes)):
            some |= self.role(k) >= least
        return some

    @property
    def n_support(self) -> int:
        return int(np.count_nonzero(self._some(SUPPORT)))

    @property
    def n_working(self) -> int:
        return int(np.count_nonzero(self._some(IDLE + 1)))

    @property
    def gap(self) -> float:
        """The largest."""
        return max(
            self.ahead[k].gap if k in self.ahead else state.gap
            for k, state in enumerate(self.classes)
        )

    @property
    def relative_gap(self) -> float:
        """The largest."""
        return max(self.now(k).relative_gap for k in range(len(self.classes)))

    @property
    def drift(self) -> float | None:
        """The largest; None where one is not known."""
        drifts = [state.drift for state in self.classes]
        known = [drift for drift in drifts if drift is not None]
        return max(known) if len(known) == len(drifts) else None

    @property
    def objective(self) -> float:
        """The sum."""
        return sum(state.objective for state in self.classes)

    @property
    def nbytes(self) -> int:
        return sum(state.nbytes for state in self.classes)


class Verified(NamedTuple):
    """An iterate under gradients computed from alpha alone, its gap, and whether it may be the end.

    Its `closed` are the classes that have converged under these gradients.
    """

    final: JointState
    gap: float
    converged: bool


class JointProblem:
    """The two-class problems of all classes, on the same patterns.

    Parameters
    ----------
    classes : sequence of Problem
        With the same backend, weights and intercept; one for two classes.
    """

    def __init__(self, classes: Sequence[Problem]) -> None:
        self.classes = classes
        self.backend = classes[0].backend
        self.intercept = classes[0].intercept

    @property
    def n_outputs(self) -> int:
        """How many sums a pass makes of every kernel value."""
        return len(self.classes)

    def start(self, initial: int) -> JointState:
        """All weight on one pattern, in every class; one kernel column serves all of them."""
        initial = self.classes[0].taking_part(initial)  # a weight of 0 concerns all classes
        column = column_of(initial, self.backend)
        states = [problem.start_at(initial, column) for problem in self.classes]
        for problem, state in zip(self.classes, states, strict=True):
            state.gap, _ = problem.stop_test(state, state.gradient)
        return JointState(states)

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
        problem = self.classes[k]
        if served is not None and request.rows is not None:
            problem = problem.part(request.rows, served)
        return problem.of_product(product, request.places, request.alpha)

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

    def relative_gap(self, state: JointState) -> float:
        """The largest of all classes; see `Problem`."""
        each = zip(self.classes, state.classes, strict=True)
        return max(problem.relative_gap(of_class) for problem, of_class in each)

    def coefficients(self, state: JointState) -> tuple[np.ndarray, np.ndarray]:
        """The support vectors of all classes, and what each decision multiplies them with.

        (K, m): each in units of its margin, or the classes could not be compared; and all times the
        smallest of them, so that they add up to 1 at most, as those of two classes do.
        """
        support = state.support()
        margins = [state.quad_form(k) for k in range(self.n_outputs)]
        least = min(margins)
        coef = np.empty((self.n_outputs, len(support)))
        for k, problem in enumerate(self.classes):
            alpha = state.now(k).alpha[support]
            scale = 1.0 if margins[k] == least else least / margins[k]
            coef[k] = problem.dual_coef(support, alpha) * scale
        return support, coef

    def verified(self, state: JointState) -> Verified:
        """Recompute all gradients from alpha, in one pass.

        For a class that is ahead, the drift is that of its hot set: no other derivative was known.
        """
        ends = [state.now(k) for k in range(self.n_outputs)]
        requests = {}
        for k, end in enumerate(ends):
            if end.drift is None:
                support = np.flatnonzero(end.alpha)
                requests[k] = GradientRequest(support, end.alpha[support], from_scratch=True)
        for k, gradient in (self.gradients(requests) if requests else {}).items():
            known = state.ahead[k].up_to_date if k in state.ahead else None
            ends[k] = self.classes[k].recomputed(ends[k], gradient, known)
        tests = [
            problem.stop_test(end, end.gradient)
            for problem, end in zip(self.classes, ends, strict=True)
        ]
        closed = {k for k, (_, converged) in enumerate(tests) if converged}
        gap = max(gap for gap, _ in tests)
        return Verified(
            JointState(ends, state.passes, closed=closed), gap, len(closed) == len(ends)
        )
