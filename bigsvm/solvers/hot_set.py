"""A hot set: some patterns that go ahead of all others, until a pass over the data."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bigsvm.solvers.state import State


@dataclass(frozen=True)
class HotSet:
    """Which patterns, and when to leave them.

    Attributes
    ----------
    index : (q,) int64
    leave_at : float
        Leave at this gap,
    last : int
        at this iteration,
    scouts : (q,) bool
    patience, earliest : int
        or when so many of the scouts have joined: of idle patterns that nothing was expected of,
        and that stand for all those left outside; but not before this iteration.
    is_final : bool
        Nobody waits to join, and all that work are in.
    """

    index: np.ndarray
    leave_at: float
    last: int
    scouts: np.ndarray
    patience: int = 1
    earliest: int = 0
    is_final: bool = False

    def is_done(self, part: State) -> bool:
        """Whether it is time to leave; `part` is the state of its patterns."""
        at_its_end = part.iteration >= self.last or part.gap <= self.leave_at
        return at_its_end or self.went_too_far(part)

    def went_too_far(self, part: State) -> bool:
        """Whether patterns joined that nothing was expected of."""
        if part.iteration < self.earliest:
            return False
        return int(np.count_nonzero(part.role[self._scout_index])) >= self.patience

    @cached_property
    def _scout_index(self) -> np.ndarray:
        return np.flatnonzero(self.scouts)


@dataclass(frozen=True)
class Excursion:
    """A hot set that is, or has been, worked on: its patterns are ahead of the rest.

    Attributes
    ----------
    state : State
        As the last pass left it.
    hot : HotSet
    part : State
        Of the hot set alone, gone ahead.
    """

    state: State
    hot: HotSet
    part: State

    @property
    def ahead(self) -> State:
        """A copy of the state as it is now, but for its gradient."""
        return self.state.with_part(self.hot.index, self.part)

    def level(self) -> float:
        """a'Qa now: of all other patterns the derivatives are those of the last pass."""
        then = self.state.gradient[self.hot.index]
        change = self.part.alpha - self.state.alpha[self.hot.index]
        return self.state.level + float(np.sum(change * (then + self.part.gradient)))


@dataclass(frozen=True)
class Wanted:
    """What a pass is asked for: the gradient of this alpha alone, or what this change adds to it.

    Attributes
    ----------
    index, alpha : (q,) arrays
        Patterns, and their alpha, or the change of it.
    afresh : bool
        The gradient itself, as the end of a run asks for.
    """

    index: np.ndarray
    alpha: np.ndarray
    afresh: bool
