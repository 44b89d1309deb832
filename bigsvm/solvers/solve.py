"""The outer loop of every training, by the command and by the estimator."""

from dataclasses import dataclass

from bigsvm.solvers.joint import JointProblem, JointState
from bigsvm.solvers.polish import polished
from bigsvm.solvers.reweight import Reweighting
from bigsvm.solvers.schedule import Event, Schedule, never


@dataclass
class Task:
    """What to solve, how, and from where.

    Attributes
    ----------
    problem : JointProblem
    schedule : Schedule
    state : JointState
        Updated in place; what a checkpoint saves.
    reweighting : Reweighting or None
        Rounds of a re-weighted SVM.
    polish : bool
        Solve what has converged to rounding; for a small problem.
    """

    problem: JointProblem
    schedule: Schedule
    state: JointState
    reweighting: Reweighting | None = None
    polish: bool = False


@dataclass(frozen=True)
class Outcome:
    """How a training ended.

    Attributes
    ----------
    status : str
        "converged", "max_iterations", or what the monitor stopped it with.
    final : JointState
        The last iterate, with its gradients recomputed from alpha.
    true_gap : float or None
        The largest gap under those gradients; None if the monitor did without them. `final` is the
        state of the task then.
    dropped : int
        Iterations since the state of the task, from which it resumes.
    """

    status: str
    final: JointState
    true_gap: float | None = None
    dropped: int = 0


class Monitor:
    """Watches a training, and may end it; this one lets it run."""

    def next_pause(self, iteration: int) -> int:
        """The next iteration at which there is to be an event."""
        return never(iteration)

    def stop(self, event: Event) -> str | None:
        """Called with each event but the last: the status to stop with, if any."""
        return None

    def wants_verification(self, status: str, now: JointState) -> bool:
        """Called when no more steps are taken: whether to recompute the gradient."""
        return True

    def round_begun(self) -> None:
        """Called when the state is that of another round of a re-weighted SVM."""


def solve(task: Task, monitor: Monitor) -> Outcome:
    """Train until convergence or a limit, or until the monitor stops it."""
    while True:
        # 1) Take steps until every class has converged or reached its limit.
        for event in task.schedule.run(task.state, monitor.next_pause):
            status = _status(event.state) if event.what == "end" else monitor.stop(event)
            if status is not None:
                break
        assert status is not None  # the last event is the end
        dropped = event.state.iteration - task.state.resumable_iteration
        if not monitor.wants_verification(status, event.state):
            return Outcome(status, task.state, dropped=dropped)
        # 2) Recompute the gradient from alpha, which removes the drift of its updates.
        final, true_gap, converged = task.problem.verified(event.state)
        # 3) Continue if that opens the gap again; else stop, or begin the next round.
        if status == "converged" and not converged:
            task.state.correct(final)
            continue
        if task.polish:
            _polish(task.problem, final)
        if status != "converged" or not _begin_next_round(task, final):
            return Outcome(status, final, true_gap, dropped)
        monitor.round_begun()


def _status(state: JointState) -> str:
    return "converged" if len(state.closed) == len(state.classes) else "max_iterations"


def _polish(problem: JointProblem, final: JointState) -> None:
    for k in final.closed:
        final.classes[k] = polished(problem.classes[k], final.classes[k])


def _begin_next_round(task: Task, solved: JointState) -> bool:
    """Re-weight the problem, and begin it where the last round ended, if there is a next one."""
    rounds = task.reweighting
    if rounds is None or solved.round >= rounds.rounds:
        return False
    each = zip(task.problem.classes, solved.classes, strict=True)
    task.state.classes = [rounds.next_round(problem, state) for problem, state in each]
    task.state.passes += 1
    return True
