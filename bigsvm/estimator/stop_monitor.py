"""What ends a fit of `BigSVC` before it has converged, and what it tells on the way."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from bigsvm.config import Duration
from bigsvm.estimator.options import checked

if TYPE_CHECKING:
    from bigsvm.estimator.classifier import BigSVC
    from bigsvm.solvers.class_states import ClassStates
    from bigsvm.solvers.state import State

SECONDS_BETWEEN_LINES = 1.0


@dataclass(frozen=True)
class Progress:
    """What a callback is told.

    Attributes
    ----------
    iteration, passes : int
        Steps so far, of all classes, and passes over the data.
    gap : float
        The largest of all classes.
    seconds : float
        Since `fit` began.
    relative_gap : float
        gap / a'Qa, the gap as a share of the margin. Training ends when it is `tol` or less, for
        every class.
    """

    iteration: int
    passes: int
    gap: float
    seconds: float
    relative_gap: float


class StopMonitor:
    """Asked by a fit, as often as it likes, whether to end; it tells how far it is.

    Parameters
    ----------
    given : BigSVC
        Its time limit, callback and `verbose`.
    began : float
        When, by `time.monotonic`.
    interrupted : callable
        Whether Ctrl-C was pressed.
    """

    def __init__(self, given: BigSVC, began: float, interrupted: Callable[[], bool]) -> None:
        self._given, self._began, self._interrupted = given, began, interrupted
        self._deadline = np.inf
        if given.time_limit is not None:
            self._deadline = began + checked(
                "time_limit", Annotated[Duration, Field(gt=0)], given.time_limit
            )
        self._line_at, self._told_at = began, 0

    def __call__(self, state: State | ClassStates) -> str | None:
        """The status to end with, if any."""
        given, now = self._given, time.monotonic()
        if given.verbose and now - self._line_at >= SECONDS_BETWEEN_LINES:
            self._line_at = now
            print(
                f"[BigSVC] iteration {state.iteration:,}, gap {state.gap:.2e}, "
                f"{state.relative_gap:.1e} of the margin"
            )
        if given.callback is not None and state.iteration > self._told_at:
            self._told_at = state.iteration
            told = Progress(
                state.iteration, state.passes, state.gap, now - self._began, state.relative_gap
            )
            if given.callback(told):
                return "callback"
        if self._interrupted():
            return "interrupted"
        return "time_limit" if now >= self._deadline else None
