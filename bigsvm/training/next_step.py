"""Why a training ended, and the command to run next."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigsvm.core.messages import METRIC_NAMES

if TYPE_CHECKING:
    from bigsvm.config import SolverConfig


@dataclass(frozen=True)
class TrainCommand:
    """The command line of a training, so that it can be shown again.

    Attributes
    ----------
    program : str
        The prefix of the commands: "bigsvm " or "python -m bigsvm.".
    config : Path
    settings : list of str
        The values of --set.
    run_dir : Path or None
        The value of --run-dir, if given.
    """

    program: str
    config: Path
    settings: list[str]
    run_dir: Path | None

    def line(self, **changed: object) -> str:
        """The command with these solver settings replaced."""
        replaced = {f"solver.{key}": str(value) for key, value in changed.items()}
        kept = [text for text in self.settings if text.partition("=")[0].strip() not in replaced]
        words = [str(self.config)]
        for setting in [*kept, *(f"{key}={value}" for key, value in replaced.items())]:
            words += ["--set", setting]
        if self.run_dir is not None:
            words += ["--run-dir", str(self.run_dir)]
        return f"{self.program}train {shlex.join(words)}"

    def evaluate(self, path: Path) -> str:
        """The command that scores the models of the run."""
        return f"{self.program}evaluate {shlex.quote(str(path))}"


def next_step(
    summary: dict[str, Any], command: TrainCommand, path: Path, solver: SolverConfig, dropped: int
) -> str:
    """One line: why the run ended, and what to do next.

    Parameters
    ----------
    summary : dict
        The summary of the run.
    command : TrainCommand
        The command that started it.
    path : Path
        The run directory.
    solver : SolverConfig
    dropped : int
        Iterations after the saved state, which the resumed run repeats.
    """
    rule = solver.stop_rule
    tolerance = f"absolute_tolerance {rule.absolute:g}" if rule.absolute else f"{rule.relative:g}"
    gap = summary["gap"] if rule.absolute else summary["relative_gap"]
    if summary["status"] == "converged":
        return f"converged: nothing is left to do; next: {command.evaluate(path)}"
    if summary["status"] == "stopped_early":
        name = METRIC_NAMES[summary["validation"]["metric"]]
        return (
            f"stopped early: the validation {name} did not improve for "
            f"run.stop_early.patience snapshots; next: {command.evaluate(path)}"
        )
    if summary["status"] == "interrupted":
        again = f" ({dropped:,} iterations since then are taken again)" if dropped else ""
        return (
            f"interrupted: saved at iteration {summary['iterations']:,} in {path}{again}; the same "
            f"command resumes: {command.line()}"
        )
    where = f"gap {gap:.1e}, tolerance {tolerance}"
    since = f" from iteration {summary['iterations'] - dropped:,}" if dropped else ""
    if summary["status"] == "time_limit":
        return (
            f"not converged ({where}): solver.time_limit was reached; the same command resumes"
            f"{since}, for as long again: {command.line()}"
        )
    more = 2 * solver.max_iterations
    return (
        f"not converged ({where}): solver.max_iterations was reached; a larger one resumes{since}: "
        f"{command.line(max_iterations=more)}"
    )
