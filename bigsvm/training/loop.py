"""The training loop: take steps, and save, report and check the stop conditions between them."""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bigsvm.backends.memory import resident_set
from bigsvm.config import RunConfig, SolverConfig
from bigsvm.solvers.one_vs_rest import OneVsRest
from bigsvm.solvers.problem import Problem
from bigsvm.solvers.reweight import Reweighting
from bigsvm.terminal.compiling import CompileTimer
from bigsvm.training.checkpoint import Checkpoints
from bigsvm.training.display import Display, Report
from bigsvm.training.run_dir import RunDir
from bigsvm.training.snapshots import SnapshotWriter
from bigsvm.training.validation import Validation

REPORT_SECONDS = 0.5
Iterate = Any  # `State`, or `ClassStates` for more than two classes


class Schedule(Protocol):
    """Carries out an algorithm on a problem."""

    def run(self, state: Any, pause: Callable[[int], int]) -> Iterator[Any]:
        """Take steps until convergence.

        Yields the current iterate: always at the iteration that ``pause(iteration)`` names, and
        wherever else it costs nothing. `state` is what a checkpoint saves: the same object as the
        yielded iterate, or one that lags a little behind it.
        """


@dataclass(frozen=True)
class Outcome:
    """How a training ended.

    Attributes
    ----------
    status : {"converged", "max_iterations", "time_limit", "stopped_early", "interrupted"}
    final : State or ClassStates
        The last iterate, with its gradient recomputed from alpha.
    true_gap : float or None
        The gap under that gradient; None if the time limit left no time to recompute it.
    dropped : int
        Iterations since the state that was saved, where the run ended before they were.
    """

    status: str
    final: Iterate
    true_gap: float | None = None
    dropped: int = 0


class Stopwatch:
    """The two times of a run: of the command, which `solver.time_limit` bounds, and of training.

    Parameters
    ----------
    began : float
        When the command began, by `time.monotonic`.
    compile_timer : CompileTimer
        Compiling counts as time of the command, not of training.

    Attributes
    ----------
    earlier : float
        Seconds of training of earlier processes.
    """

    def __init__(self, began: float, compile_timer: CompileTimer) -> None:
        self._began = began
        self._compile_timer = compile_timer
        self._start = self._not_compiling()
        self.earlier = 0.0

    def start_training(self) -> None:
        """Count the time of training from now on: the data is there, and nothing is read yet."""
        self._start = self._not_compiling()

    @property
    def command(self) -> float:
        """Seconds since the command began."""
        return time.monotonic() - self._began

    @property
    def training(self) -> float:
        """Seconds of training, over all processes that worked on the run."""
        return self.earlier + self._not_compiling() - self._start

    def _not_compiling(self) -> float:
        return time.monotonic() - self._compile_timer.seconds


@dataclass
class Training:
    """One run, started or resumed, and what it needs to reach its end."""

    problem: Problem | OneVsRest
    schedule: Schedule
    state: Iterate
    solver: SolverConfig
    saving: RunConfig
    run_dir: RunDir
    checkpoints: Checkpoints
    display: Display
    models: SnapshotWriter
    interrupted: Callable[[], bool]
    stopwatch: Stopwatch
    reweighting: Reweighting | None = None
    validation: Validation | None = None
    reported_iteration: int = 0  # the last in metrics.jsonl, which is not always the one resumed at

    def __post_init__(self) -> None:
        self._reported = self._saved = time.monotonic()
        self._saved_iteration = self.state.iteration
        self._time_to_verify = VerificationTime(self.problem, self.solver.time_limit)

    def run(self) -> Outcome:
        """Train until convergence, a limit or an interruption.

        1) take steps until a stop condition holds; 2) recompute the gradient from alpha, which
        removes the drift of its updates; 3) stop if the gap is still closed, else continue.
        """
        if self.state.iteration == 0:
            self._checkpoint()  # records the run's identity before its first snapshot
        while True:
            status, final = self._loop()
            self._report()
            self._checkpoint()
            no_time_left = status == "time_limit" and self._time_to_verify.too_long
            if status == "interrupted" or no_time_left:
                return Outcome(status, self.state, dropped=final.iteration - self.state.iteration)
            verified = self.problem.verified(self.state, final)
            if status == "converged" and verified.converged and self._next_round(verified.final):
                continue
            if status != "converged" or verified.converged:
                return Outcome(status, verified.final, verified.gap)
            self.state.correct(verified.final)

    def _loop(self) -> tuple[str, Iterate]:
        if self.state.reached(self.solver.max_iterations):
            return "max_iterations", self.state
        if self.validation is not None and self.validation.stops:
            return "stopped_early", self.state
        snapshot_at = self._next_snapshot(self.state.iteration)
        for now in self.schedule.run(self.state, self._next_pause):
            if now.iteration == snapshot_at:
                path = self.run_dir.snapshot_path(now.iteration)
                self.save_model(now, path)
                snapshot_at = self._next_snapshot(now.iteration)
                if self.validation is not None and self.validation.add(path, self.seconds):
                    return "stopped_early", now
            if now.reached(self.solver.max_iterations):
                return "max_iterations", now
            clock = time.monotonic()
            if clock - self._reported >= REPORT_SECONDS:
                self._report()
            if self._checkpoint_is_due(clock):
                self._checkpoint()
            if self.interrupted():
                return "interrupted", now
            if self._time_is_up(now):
                return "time_limit", now
        return "converged", self.state

    def save_model(
        self,
        state: Iterate,
        path: Path,
        is_last: bool = False,
        relative_gap: float | None = None,
    ) -> None:
        """Write the model at an iterate of this round."""
        self.models.save(state, self.problem, path, is_last, relative_gap)

    def _next_round(self, solved: Iterate) -> bool:
        """Start the next round of a re-weighted SVM, if there is one."""
        if self.reweighting is None or solved.round >= self.reweighting.rounds:
            return False
        assert isinstance(self.problem, Problem)
        self.state = self.reweighting.next_round(self.problem, solved)
        self.display.log(f"round {self.state.round} begins at iteration {solved.iteration:,}")
        self._checkpoint()
        return True

    def _next_snapshot(self, iteration: int) -> int:
        every = self.saving.snapshot_every
        return (iteration // every + 1) * every

    def _next_pause(self, iteration: int) -> int:
        """The next iteration with a snapshot or a checkpoint, or at which the run must end."""
        stops = [self._next_snapshot(iteration), self.solver.max_iterations]
        if self.saving.checkpoint_every is not None:
            stops.append(self._saved_iteration + self.saving.checkpoint_every)
        return min((stop for stop in stops if stop > iteration), default=2**62)

    @property
    def seconds(self) -> float:
        """Time spent on this run, over all processes that worked on it."""
        return self.stopwatch.training

    @property
    def kernel_values(self) -> int:
        """Kernel values computed for this run, over all processes that worked on it."""
        return self.problem.backend.kernel_values.total

    def _report(self) -> None:
        self._reported = time.monotonic()
        state = self.state
        if state.iteration == self.reported_iteration:
            return
        self.reported_iteration = state.iteration
        report = Report(
            state.iteration,
            state.passes,
            state.gap,
            state.relative_gap,
            state.objective,
            state.n_working,
            state.n_support,
            round(self.seconds, 3),
            resident_set(),
        )
        self.run_dir.append_metrics(
            {"pass" if key == "passes" else key: value for key, value in asdict(report).items()}
        )
        self.display.report(report)

    def _checkpoint_is_due(self, now: float) -> bool:
        if self.saving.checkpoint_every is not None:
            steps = self.state.iteration - self._saved_iteration
            if steps >= self.saving.checkpoint_every:
                return True
        return now - self._saved >= self.saving.checkpoint_seconds

    def _checkpoint(self) -> None:
        self.checkpoints.save(self.state, self.seconds, self.kernel_values)
        self._saved = time.monotonic()
        self._saved_iteration = self.state.iteration

    def _time_is_up(self, now: Iterate) -> bool:
        limit = self.solver.time_limit
        if limit is None:
            return False
        return self.stopwatch.command + self._time_to_verify.seconds(now) >= limit


class VerificationTime:
    """Estimates how long the final recomputation of the gradient takes: the time limit includes it.

    Two small products are timed, to separate the cost of reading the data from the cost per row.
    """

    def __init__(self, problem: Problem | OneVsRest, time_limit: float | None) -> None:
        self.too_long = False
        if time_limit is None:
            return
        self._half = time_limit / 2
        rows = problem.backend.gather(np.zeros(96, np.int64))
        seconds = []
        for count in (6, 96):
            begin = time.monotonic()
            problem.backend.matvec(rows[:count], np.zeros((count, problem.n_outputs)))
            seconds.append(time.monotonic() - begin)
        self._per_row = max(0.0, (seconds[1] - seconds[0]) / 90)
        self._reading = seconds[0]
        self._counted_at, self._rows = -1, 0

    def seconds(self, state: Iterate) -> float:
        """The time to reserve; next to none if it would exceed half of the time limit."""
        if state.iteration >= self._counted_at + 100:
            self._counted_at, self._rows = state.iteration, state.n_support
        expected = 0.1 + 1.2 * (self._reading + self._per_row * (self._rows + 100))
        self.too_long = expected > self._half
        return 0.1 if self.too_long else expected
