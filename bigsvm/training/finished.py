"""Recognise a run that has finished: starting it again changes nothing."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bigsvm.config import SolverConfig
    from bigsvm.solvers.joint import JointState
    from bigsvm.training.run_dir import RunDir


class AlreadyFinished(Exception):
    """The run has nothing left to do; `summary` says how it ended."""

    def __init__(self, summary: dict[str, Any]) -> None:
        super().__init__(summary["status"])
        self.summary = summary


def check_unfinished(
    run_dir: RunDir, state: JointState, solver: SolverConfig, rounds: int, stops: bool
) -> None:
    """Raise `AlreadyFinished` where the run ended at `state`, its newest checkpoint, for good.

    A converged run has work left only under a smaller tolerance or with more rounds; one that
    reached max_iterations only under a larger limit; one that stopped early only if its validation
    scores would not stop it now (`stops`).
    """
    summary: Any = None
    with suppress(OSError, ValueError):  # none, or a torn one: the run had not ended
        summary = json.loads(run_dir.summary.read_text())
    if not isinstance(summary, dict) or not run_dir.model.exists():
        return
    if stops and summary.get("status") == "stopped_early":
        raise AlreadyFinished(summary)
    if summary.get("iterations") != state.iteration or summary.get("round", 1) < rounds:
        return
    converged = summary.get("status") == "converged" and _is_closed(summary, solver)
    exhausted = summary.get("status") == "max_iterations" and state.reached(solver.max_iterations)
    if converged or exhausted:
        raise AlreadyFinished(summary)


def _is_closed(summary: dict[str, Any], solver: SolverConfig) -> bool:
    """Whether the gap recomputed at the end satisfies the current stop rule."""
    rule = solver.stop_rule
    gap = summary.get("true_gap" if rule.absolute else "true_relative_gap")
    return isinstance(gap, int | float) and gap <= (rule.absolute or rule.relative)
