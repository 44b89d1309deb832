"""A part of the patterns that is ahead of the others until the next pass over the data."""

from dataclasses import dataclass, field
from hashlib import sha256

import numpy as np

from bigsvm.solvers.state import PartialSolve, State


@dataclass
class BlockSolve:
    """A subproblem that is being solved, or was: its patterns are ahead of the rest.

    Attributes
    ----------
    state : State
        As the last pass left it.
    index : (m,) int64
        The patterns of the subproblem.
    part : State
        The iterate of the subproblem. Its arrays are updated in place.
    tolerances : tuple of float
        Solved when gap <= tolerances[0] * a'Qa + tolerances[1] and no pattern waits to join.
    sample : int
        The patterns that the next pass is over; 0 for all. See `State.sample`.
    quad_form : float
        a'Qa of the subproblem, normalised, without the steps of a hot set in it.
    last : int
        Left at this iteration, solved or not: what is done here is not safe before it is committed.
    is_whole : bool
        All patterns are in the subproblem, so that it needs no pass.
    waiting : int
        How many idle patterns waited to join before it, in it or not.
    candidates : int
        How many idle patterns it includes, which may join.
    inner : BlockSolve or None
        The hot set that is ahead of `part`, where the subproblem is too large for one.
    level : float or None
        Of such a hot set: the derivative at which it takes up weight or gives it away. See
        `hot_steps`.
    growth : float
        The sum of all alpha, which `part` is not normalised by before it is committed: otherwise
        every pattern would have moved.
    """

    state: State
    index: np.ndarray
    part: State
    tolerances: tuple[float, float]
    sample: int
    quad_form: float
    last: int
    is_whole: bool = False
    waiting: int = 0
    candidates: int = 0
    inner: "BlockSolve | None" = field(default=None)
    level: float | None = None
    growth: float = 1.0

    def waited_in_vain(self, idle: int) -> int | None:
        """How many waited before it, if it left most of its candidates in the role `idle`."""
        left = np.count_nonzero(self.part.role == idle)
        return self.waiting if 2 * left >= self.candidates else None

    @property
    def iteration(self) -> int:
        """Steps taken, with those of the hot set."""
        return self.part.iteration if self.inner is None else self.inner.iteration

    @property
    def gap(self) -> float:
        """As the last step saw it."""
        return self.part.gap / self.growth if self.inner is None else self.inner.gap

    @property
    def role(self) -> np.ndarray:
        """The roles of the patterns of the subproblem now."""
        return self._preview_part().role

    @property
    def quad_form_now(self) -> float:
        """a'Qa, with the steps of the hot set."""
        return self.quad_form if self.inner is None else self.inner.quad_form_now

    @property
    def up_to_date(self) -> tuple[np.ndarray, np.ndarray]:
        """The patterns whose derivatives are known now, and those derivatives."""
        if self.inner is None:
            return self.index, self.part.gradient / self.growth
        within, gradient = self.inner.up_to_date
        return self.index[within], gradient

    @property
    def preview_state(self) -> State:
        """A copy of the state as it is now, but for its gradient."""
        ahead = self.state.with_part(self.index, self._preview_part())
        growth = self.growth if self.inner is None else self.inner.growth
        ahead.alpha /= growth
        ahead.gradient /= growth
        ahead.gap /= growth
        return ahead

    def partial_solve(self, sweep: int, cells: int) -> PartialSolve:
        """What to resume from, once this many cells of a sweep are solved."""
        part = self.part
        return PartialSolve(
            self.index,
            part.alpha,
            part.gradient,
            part.role,
            self.growth,
            self.quad_form,
            part.gap,
            part.iteration,
            sweep,
            cells,
        )

    def _preview_part(self) -> State:
        if self.inner is None:
            return self.part
        return self.inner.state.with_part(self.inner.index, self.inner.part)


@dataclass(frozen=True)
class GradientRequest:
    """What a pass is asked for: the gradient of this alpha, or what this change adds to it.

    Attributes
    ----------
    index, alpha : (q,) arrays
        Patterns in ascending order, and their alpha, or the change of it.
    from_scratch : bool
        The gradient itself, not a change.
    sample : int
        The sample that the pass is over; 0 for all patterns. See `State.sample`.
    rows : (m,) int64 or None
        Those patterns, ascending; None for all.
    """

    index: np.ndarray
    alpha: np.ndarray
    from_scratch: bool
    sample: int = 0
    rows: np.ndarray | None = None

    @property
    def patterns(self) -> bytes:
        """The same for requests that are over the same patterns."""
        return b"" if self.rows is None else sha256(self.rows.data).digest()

    @property
    def places(self) -> np.ndarray:
        """Where the patterns `index` are among `rows`."""
        return self.index if self.rows is None else np.searchsorted(self.rows, self.index)
