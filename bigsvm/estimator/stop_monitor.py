"""Ends a fit of `BigSVC` before convergence, and reports its progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from bigsvm.config import Duration
from bigsvm.estimator.options import validate_parameter
from bigsvm.solvers.joint import JointState
from bigsvm.solvers.schedule import Event, Pause
from bigsvm.solvers.solve import Monitor

if TYPE_CHECKING:
    from bigsvm.estimator.classifier import BigSVC

SECONDS_BETWEEN_LINES = 1.0


@dataclass(frozen=True)
class Progress:
    """The argument of a callback.

    Attributes
    ----------
    iteration, passes : int
        Steps so far, over all classes, and passes over the data.
    gap : float
        The largest gap of all classes.
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


class StopMonitor(Monitor):
    """Called by a fit with its events; prints progress and decides whether to stop.

    Parameters
    ----------
    estimator : BigSVC
        Has the time limit, callback and `verbose`.
    began : float
        When the fit began, by `time.monotonic`.
    interrupted : callable
        Returns whether Ctrl-C was pressed.
    pause : callable
        See `Monitor.next_pause`.
    observers : sequence of callables
        Called with every new iterate; a status that one returns ends the fit.
    """

    def __init__(
        self,
        estimator: BigSVC,
        began: float,
        interrupted: Callable[[], bool],
        pause: Pause,
        observers: Sequence[Callable[[JointState], str | None]] = (),
    ) -> None:
        self._estimator, self._began, self._interrupted = estimator, began, interrupted
        self._pause, self._observers = pause, observers
        self._deadline = np.inf
        if estimator.time_limit is not None:
            self._deadline = began + validate_parameter(
                "time_limit", Annotated[Duration, Field(gt=0)], estimator.time_limit
            )
        self._printed_at, self._shown_at = began, 0

    def next_pause(self, iteration: int) -> int:
        """See `Monitor`."""
        return self._pause(iteration)

    def stop(self, event: Event) -> str | None:
        """Print and call back; the status to stop with, if any."""
        estimator, state, now = self._estimator, event.state, time.monotonic()
        if estimator.verbose and now - self._printed_at >= SECONDS_BETWEEN_LINES:
            self._printed_at = now
            print(
                f"[BigSVC] iteration {state.iteration:,}, gap {state.gap:.2e}, "
                f"{state.relative_gap:.1e} of the margin"
            )
        if event.what == "begin":  # a fit takes at least one step, however short the time limit
            return None
        if event.what != "steps" and state.iteration > self._shown_at:
            self._shown_at = state.iteration
            if estimator.callback is not None and estimator.callback(self._progress(state)):
                return "callback"
            for observer in self._observers:
                if status := observer(state):
                    return status
        if self._interrupted():
            return "interrupted"
        return "time_limit" if now >= self._deadline else None

    def _progress(self, state: JointState) -> Progress:
        seconds = time.monotonic() - self._began
        return Progress(state.iteration, state.passes, state.gap, seconds, state.relative_gap)
