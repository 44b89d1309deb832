"""The result of a training: summary.json, and the lines printed at the end."""

import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bigsvm.backends import Backend
from bigsvm.backends.dask import DaskBackend
from bigsvm.backends.memory import peak_resident_set
from bigsvm.core.labels import Classes
from bigsvm.core.messages import METRIC_NAMES, shell_command
from bigsvm.core.version import __version__
from bigsvm.models.evaluation import Majority
from bigsvm.solvers.diagnosis import diagnose
from bigsvm.solvers.solve import Outcome
from bigsvm.terminal.logs import print_result
from bigsvm.training.display import Display
from bigsvm.training.loop import Training


def summarise(training: Training, outcome: Outcome, classes: Classes) -> dict[str, Any]:
    """The content of summary.json."""
    state, problem, backend = outcome.final, training.task.problem, training.task.problem.backend
    true_relative_gap = None if outcome.true_gap is None else problem.relative_gap(state)
    overhead = getattr(backend, "overhead_per_pass", None)  # only on a cluster
    return {
        "status": outcome.status,
        "iterations": state.resumable_iteration,  # inside a subproblem, ahead of the figures below
        "passes": state.passes,
        "gap": state.gap,
        "relative_gap": state.relative_gap,
        "true_gap": outcome.true_gap,
        "true_relative_gap": true_relative_gap,
        "drift": state.drift,
        "objective": state.objective,
        "n_support": state.n_support,
        "n_working": state.n_working,
        **({"round": state.round} if training.task.reweighting else {}),
        "train_seconds": round(training.seconds, 3),
        "peak_rss_bytes": peak_resident_set(),
        "kernel_values": training.kernel_values,
        "work": round(training.kernel_values / (backend.n * state.n_support), 2),
        "versions": _versions(),
        **({"overhead_seconds_a_pass": round(overhead, 6)} if overhead is not None else {}),
        "shares": _shares(backend, training.session.stopwatch.this_process),
        **({"classes": _by_class(training, outcome, classes)} if len(classes) > 2 else {}),
    }


def _shares(backend: Backend, seconds: float) -> dict[str, Any]:
    """Of the time of this process, the driver's share, and of each worker that of computing.

    The driver's is the time in which no worker computed; without a cluster, all of it.
    """
    if not isinstance(backend, DaskBackend):
        return {"driver": 1.0}
    workers = sorted(backend.worker_seconds.items())
    return {
        "driver": round(max(0.0, 1 - backend.busy_seconds / seconds), 3),
        **{address: round(computing / seconds, 3) for address, computing in workers},
    }


def _versions() -> dict[str, str]:
    """The versions of the software that computed the run."""
    libraries = {name: version(name) for name in ("numba", "numpy")}
    return {"bigsvm": __version__, "python": platform.python_version(), **libraries}


def _by_class(training: Training, outcome: Outcome, labels: Classes) -> list[dict[str, Any]]:
    """The result of each class against the rest, for more than two classes."""
    facts = []
    of_class = zip(labels, training.task.problem.classes, outcome.final.classes, strict=True)
    for label, problem, state in of_class:
        true_gap, closed = problem.stop_test(state, state.gradient)
        facts.append(
            {
                "label": label,
                "converged": closed and state.drift is not None,
                "iterations": state.iteration,
                "gap": state.gap,
                "relative_gap": state.relative_gap,
                "true_gap": None if outcome.true_gap is None else true_gap,
                "true_relative_gap": (
                    None if outcome.true_gap is None else problem.relative_gap(state)
                ),
                "objective": state.objective,
                "n_support": state.n_support,
                "n_working": state.n_working,
            }
        )
    return facts


def print_summary(summary: dict[str, Any], path: Path, next_step: str) -> None:
    """Print the result of a training in a few lines."""
    accuracy = summary.get("accuracy")
    print_result(
        f"{summary['status']} after {summary['iterations']:,} iterations, "
        f"{summary['train_seconds']:.1f} s: gap {summary['gap']:.2e} "
        f"({summary['relative_gap']:.1e} of the margin), "
        f"{summary['n_support']:,} support vectors, {summary['n_working']:,} working"
        + (f", {len(summary['classes'])} classes" if "classes" in summary else "")
        + (f", test accuracy {100 * accuracy:.2f} %" if accuracy is not None else "")
        + _more_scores(summary)
    )
    if summary["true_gap"] is not None:
        print_result(
            f"recomputed: true gap {summary['true_gap']:.2e} "
            f"({summary['true_relative_gap']:.1e} of the margin), drift {summary['drift']:.1e}"
        )
    if overhead := summary.get("overhead_seconds_a_pass"):
        print_result(
            f"cluster: a pass took {1e3 * overhead:.0f} ms longer than its slowest worker computed"
        )
    if len(shares := summary["shares"]) > 1:
        of_workers = ", ".join(f"{100 * share:.0f}" for share in list(shares.values())[1:])
        print_result(
            f"cluster: the driver alone took {100 * shares['driver']:.0f} % of the time, and the "
            f"workers computed in {of_workers} % of it"
        )
    if summary["status"] != "interrupted":
        print_result(f"model: {path / 'model.safetensors'}")
    if validation := summary.get("validation"):
        best, name = validation["best"], METRIC_NAMES[validation["metric"]]
        print_result(
            f"best on {validation['rows']:,} validation rows: iteration {best['iteration']:,}, "
            f"{name} {100 * best[validation['metric']]:.2f} %: {path / 'best.safetensors'}"
        )
    print_result(next_step)


def _more_scores(summary: dict[str, Any]) -> str:
    """Balanced accuracy and AUC for unbalanced classes, and a warning if the model is useless."""
    if "majority" not in summary:
        return ""
    majority = Majority(**summary["majority"])
    text = ""
    if majority.is_large:
        text += f", balanced {100 * summary['balanced_accuracy']:.2f} %"
        if summary.get("auc") is not None:
            text += f", AUC {100 * summary['auc']:.2f} %"
    warning = majority.warning(summary["accuracy"], summary["balanced_accuracy"])
    return text + (f"\nwarning: {warning}" if warning else "")


def print_finished(summary: dict[str, Any], path: Path) -> None:
    """Print that a run has nothing left to do, and how to continue it nevertheless."""
    if summary["status"] == "stopped_early":
        more = "a larger run.stop_early.patience continues it"
    elif summary["status"] == "converged":
        more = "a smaller solver.tolerance continues it"
    else:
        more = "a larger solver.max_iterations continues it"
    print_result(
        f"already {summary['status']} after {summary['iterations']:,} iterations: nothing to do; "
        f"{more}, --fresh starts over"
    )
    print_result(
        f"model: {path / 'model.safetensors'}; snapshots: {shell_command('evaluate', path)}"
    )


def warn_if_useless(outcome: Outcome, training: Training, display: Display) -> None:
    """Warn about a final model that is hardly better than guessing."""
    problems = training.task.problem.classes
    found = diagnose(outcome.final.classes, problems, outcome.status == "converged")
    if found is not None:
        display.log(f"warning: {found}")
