"""The iterates of more than two classes, each against the rest."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from bigsvm.solvers.block_solve import BlockSolve
from bigsvm.solvers.state import IDLE, SUPPORT, State


@dataclass
class ClassStates:
    """One state for each class, as if it were trained alone.

    Attributes
    ----------
    classes : list of State
        A later process can resume from here.
    passes : int
        Over the data; one serves all classes that wait for it.
    away : mapping
        Of the block schedule: the subproblems of classes that are ahead of their state.
    closed : set
        The classes that are done.
    """

    margin: ClassVar[None] = None  # no rounds of re-weighting here
    round: ClassVar[int] = 1

    classes: list[State]
    passes: int = 0
    away: Mapping[int, BlockSolve] = field(default_factory=dict)
    closed: set[int] = field(default_factory=set)

    def now(self, k: int) -> State:
        """Class k as it is now; where it is away this is a copy, its gradient left behind."""
        return self.away[k].preview_state if k in self.away else self.classes[k]

    def quad_form(self, k: int) -> float:
        """a'Qa of class k now."""
        return self.away[k].quad_form_now if k in self.away else self.classes[k].quad_form

    def iterations(self, k: int) -> int:
        """The steps that class k has taken."""
        return self.away[k].iteration if k in self.away else self.classes[k].iteration

    @property
    def iteration(self) -> int:
        """The steps of all classes together."""
        return sum(self.iterations(k) for k in range(len(self.classes)))

    def reached(self, limit: int) -> bool:
        """Whether every class that is not done has taken `limit` steps."""
        going = set(range(len(self.classes))) - self.closed
        return bool(going) and all(self.iterations(k) >= limit for k in going)

    def correct(self, recomputed: "ClassStates") -> None:
        """See `State.correct`."""
        for state, exact in zip(self.classes, recomputed.classes, strict=True):
            state.correct(exact)

    def role(self, k: int) -> np.ndarray:
        """The roles of the patterns for class k now."""
        role = self.classes[k].role
        if k in self.away:
            role = role.copy()
            role[self.away[k].index] = self.away[k].role
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
        return max(state.gap for state in self.classes)

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
