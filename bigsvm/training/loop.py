"""The training loop of the command: saves, reports and checks limits while `solve` takes steps."""

import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from bigsvm.backends.memory import resident_set
from bigsvm.cluster.workers import Cluster
from bigsvm.config import Config
from bigsvm.solvers.joint import JointProblem, JointState
from bigsvm.solvers.schedule import Event
from bigsvm.solvers.solve import Monitor, Outcome, Task, solve
from bigsvm.terminal.compiling import CompileTimer
from bigsvm.terminal.signals import GracefulExit
from bigsvm.training.checkpoint import Checkpoints
from bigsvm.training.display import Display, Report
from bigsvm.training.run_dir import RunDir
from bigsvm.training.snapshots import SnapshotWriter
from bigsvm.training.validation import Validation

# Between two reports; at first a tenth of the time since the first one, so that a short training
# has a curve, too.
REPORT_SECONDS, FIRST_REPORT_SECONDS = 0.5, 0.02


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
        """Start the time of training: the data is prepared, but not yet read."""
        self._start = self._not_compiling()

    @property
    def command(self) -> float:
        """Seconds since the command began."""
        return time.monotonic() - self._began

    @property
    def training(self) -> float:
        """Seconds of training, over all processes of the run."""
        return self.earlier + self.this_process

    @property
    def this_process(self) -> float:
        """Seconds of training of this process."""
        return self._not_compiling() - self._start

    def _not_compiling(self) -> float:
        return time.monotonic() - self._compile_timer.seconds


@dataclass(frozen=True)
class Session:
    """The process that works on a run: its display, its clock, and what may end it."""

    display: Display
    stopwatch: Stopwatch
    graceful_exit: GracefulExit
    cluster: Cluster | None = None

    def interrupted(self) -> bool:
        """Whether a signal asks for the end, or the cluster is lost."""
        return self.graceful_exit() or (self.cluster is not None and self.cluster.loss is not None)


@dataclass
class Training(Monitor):
    """One run, started or resumed, and what it needs to reach its end."""

    task: Task
    config: Config
    run_dir: RunDir
    checkpoints: Checkpoints
    models: SnapshotWriter
    session: Session
    validation: Validation | None = None

    def __post_init__(self) -> None:
        self._reported = self._saved = time.monotonic()
        self._first_reported: float | None = None
        reached = self._saved_iteration = self.task.state.resumable_iteration
        self._last_margin = 0.0
        self._reported_iteration = self.run_dir.last_reported
        # A snapshot that was due here is missing if the cluster was lost while it was written.
        is_missing = reached > 0 and not self.run_dir.snapshot_path(reached).exists()
        self._snapshot_at = self._next_snapshot(reached - is_missing)
        self._time_to_verify = VerificationTime(self.task.problem, self.config.solver.time_limit)

    def run(self) -> Outcome:
        """Train until convergence, a limit or an interruption."""
        if self.task.state.resumable_iteration == 0:
            self.checkpoint()  # records the run's identity before its first snapshot
        outcome = solve(self.task, self)
        if outcome.true_gap is not None and outcome.final.iteration > self._reported_iteration:
            gap = self.task.problem.relative_gap(outcome.final)
            end = self._report_at(outcome.final)
            self._append(replace(end, gap=outcome.true_gap, relative_gap=gap))
        return outcome

    def next_pause(self, iteration: int) -> int:
        """The next iteration with a snapshot or a checkpoint."""
        pause, every = self._next_snapshot(iteration), self.config.run.checkpoint_every
        if every is not None and self._saved_iteration + every > iteration:
            pause = min(pause, self._saved_iteration + every)
        return pause

    def stop(self, event: Event) -> str | None:
        """Save and report what is due; the status to stop with, if any."""
        is_due = event.state.iteration == self._snapshot_at
        if is_due:
            self._save_snapshot(event.state)
        has_begun = event.what != "begin"
        if has_begun:  # not before: a resumed run may be behind its last snapshot for a moment
            self._snapshot_at = self._next_snapshot(event.state.iteration)
        if self.validation is not None and (is_due or not has_begun) and self.validation.stops:
            return "stopped_early"
        if not has_begun:  # a run takes at least one step, however short the time limit
            return None
        clock = time.monotonic()
        if clock - self._reported >= self._report_spacing(clock):
            self._report(event.state)
        if (ahead := event.state).iteration > self.task.state.iteration:
            self.session.display.steps(ahead.iteration, lambda: self._report_at(ahead))
        if self._checkpoint_is_due(clock):
            self.checkpoint()
        if self.session.interrupted():
            return "interrupted"
        return "time_limit" if self._time_is_up(event) else None

    def wants_verification(self, status: str, now: JointState) -> bool:
        """Save and report where the steps ended; verify unless interrupted or out of time."""
        self._last_margin = margin_of(now)
        self._report(now)
        self.checkpoint()
        no_time_left = status == "time_limit" and self._time_to_verify.too_long
        return status != "interrupted" and not no_time_left

    def round_begun(self) -> None:
        """Report and save that a round of a re-weighted SVM begins."""
        state = self.task.state
        self.session.display.log(f"round {state.round} begins at iteration {state.iteration:,}")
        self.checkpoint()

    def save_model(
        self,
        state: JointState,
        path: Path,
        is_last: bool = False,
        relative_gap: float | None = None,
    ) -> None:
        """Write the model at an iterate of this round.

        The last one has the margin of before the verification, so that it is the snapshot of its
        iteration, byte for byte, unless it converged.
        """
        margin = self._last_margin if is_last else margin_of(state)
        self.models.save(state, self.task.problem, path, margin, is_last, relative_gap)

    def checkpoint(self) -> None:
        """Save the state."""
        self.checkpoints.save(self.task.state, self.seconds, self.kernel_values)
        self._saved = time.monotonic()
        self._saved_iteration = self.task.state.resumable_iteration

    @property
    def seconds(self) -> float:
        """Seconds of training, over all processes of the run."""
        return self.session.stopwatch.training

    @property
    def kernel_values(self) -> int:
        """Kernel values computed, over all processes of the run."""
        return self.task.problem.backend.kernel_values.total

    def _save_snapshot(self, state: JointState) -> None:
        path = self.run_dir.snapshot_path(state.iteration)
        self.save_model(state, path)
        if self.validation is not None:
            self.validation.add(path, self.seconds)

    def _next_snapshot(self, iteration: int) -> int:
        every = self.config.run.snapshot_every
        return (iteration // every + 1) * every

    def _report_spacing(self, clock: float) -> float:
        since = 0.0 if self._first_reported is None else clock - self._first_reported
        return min(REPORT_SECONDS, max(FIRST_REPORT_SECONDS, since / 10))

    def _report(self, now: JointState) -> None:
        state = self._up_to_date(now)
        if state.iteration > self._reported_iteration:  # a resumed one may be behind the last row
            self._reported = time.monotonic()
            self._first_reported = self._first_reported or self._reported
            self._append(self._report_at(state))

    def _append(self, report: Report) -> None:
        self._reported_iteration = report.iteration
        self.run_dir.append_metrics(
            {"pass" if key == "passes" else key: value for key, value in asdict(report).items()}
        )
        self.session.display.report(report)

    def _up_to_date(self, now: JointState) -> JointState:
        """The iterate; where the gradient of some patterns lags behind it, the state instead."""
        return now if all(block.is_whole for block in now.ahead.values()) else self.task.state

    def _report_at(self, now: JointState) -> Report:
        """The report at an iterate; gaps are those of the last one with a current gradient."""
        state = self._up_to_date(now)
        return Report(
            now.iteration,
            state.passes,
            state.gap,
            state.relative_gap,
            sum(0.5 * state.quad_form(k) for k in range(len(state.classes))),
            now.n_working,
            now.n_support,
            round(self.seconds, 3),
            resident_set(),
        )

    def _checkpoint_is_due(self, now: float) -> bool:
        every, seconds = self.config.run.checkpoint_every, self.config.run.checkpoint_seconds
        reached = self.task.state.resumable_iteration
        if every is not None and reached - self._saved_iteration >= every:
            return True
        return now - self._saved >= seconds

    def _time_is_up(self, event: Event) -> bool:
        limit = self.config.solver.time_limit
        if limit is None:
            return False
        return self.session.stopwatch.command + self._time_to_verify.seconds(event) >= limit


def margin_of(state: JointState) -> float:
    """The unit of the decision values: a'Qa, of several classes the smallest."""
    return min(state.quad_form(k) for k in range(len(state.classes)))


class VerificationTime:
    """Estimates how long the final recomputation of the gradient takes: the time limit includes it.

    Two small products are timed, to separate the cost of reading the data from the cost per row.
    """

    def __init__(self, problem: JointProblem, time_limit: float | None) -> None:
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

    def seconds(self, event: Event) -> float:
        """The time to reserve; hardly any if it would exceed half of the time limit."""
        now = event.state
        if event.what != "steps" and now.iteration >= self._counted_at + 100:
            self._counted_at, self._rows = now.iteration, now.n_support
        expected = 0.1 + 1.2 * (self._reading + self._per_row * (self._rows + 100))
        self.too_long = expected > self._half
        return 0.1 if self.too_long else expected
