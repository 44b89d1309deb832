"""What came of a training: summary.json, and the lines a user reads at the end."""

from pathlib import Path
from typing import Any

import numpy as np

from bigsvm.preparation.labels import Classes
from bigsvm.solvers.class_states import ClassStates
from bigsvm.solvers.one_vs_rest import OneVsRest
from bigsvm.solvers.problem import Problem
from bigsvm.solvers.state import IDLE, State, pieces
from bigsvm.terminal.display import Display
from bigsvm.training.loop import Outcome, Training
from bigsvm.training.memory import peak_resident_set


def summarise(training: Training, outcome: Outcome, classes: Classes) -> dict[str, Any]:
    """What summary.json says."""
    state, backend = outcome.final, training.problem.backend
    overhead = getattr(backend, "overhead_a_pass", None)  # of a cluster
    return {
        "status": outcome.status,
        "iterations": state.iteration,
        "passes": state.passes,
        "gap": state.gap,
        "true_gap": outcome.true_gap,
        "drift": state.drift,
        "objective": state.objective,
        "n_support": state.n_support,
        "n_working": state.n_working,
        **({"round": state.round} if training.reweighting else {}),
        "train_seconds": round(training.seconds, 3),
        "peak_rss_bytes": peak_resident_set(),
        **({"overhead_seconds_a_pass": round(overhead, 6)} if overhead is not None else {}),
        **({"classes": _by_class(training, outcome, classes)} if len(classes) > 2 else {}),
    }


def _by_class(training: Training, outcome: Outcome, labels: Classes) -> list[dict[str, Any]]:
    """What each class against the rest has come to, where there are more than two."""
    assert isinstance(training.problem, OneVsRest)
    facts = []
    of_class = zip(labels, training.problem.classes, outcome.final.classes, strict=True)
    for label, problem, state in of_class:
        true_gap, closed = problem.stop_test(state, state.gradient)
        facts.append(
            {
                "label": label,
                "converged": closed and state.drift is not None,
                "iterations": state.iteration,
                "gap": state.gap,
                "true_gap": None if outcome.true_gap is None else true_gap,
                "objective": state.objective,
                "n_support": state.n_support,
                "n_working": state.n_working,
            }
        )
    return facts


def tell(summary: dict[str, Any], path: Path) -> None:
    """Print what a user wants to know."""
    accuracy = summary.get("accuracy")
    print(
        f"{summary['status']} after {summary['iterations']:,} iterations, "
        f"{summary['train_seconds']:.1f} s: gap {summary['gap']:.2e}, "
        f"{summary['n_support']:,} support vectors, {summary['n_working']:,} working"
        + (f", {len(summary['classes'])} classes" if "classes" in summary else "")
        + (f", test accuracy {100 * accuracy:.2f} %" if accuracy is not None else "")
    )
    if summary["true_gap"] is not None:
        print(f"recomputed: true gap {summary['true_gap']:.2e}, drift {summary['drift']:.1e}")
    if overhead := summary.get("overhead_seconds_a_pass"):
        print(f"cluster: a pass took {1e3 * overhead:.0f} ms more than its slowest worker computed")
    if summary["status"] == "interrupted":
        print(f"saved in {path}; the same command goes on from there")
    else:
        print(f"model: {path / 'model.safetensors'}; snapshots: python -m bigsvm.evaluate {path}")


def warn_of_useless_kernel(
    final: State | ClassStates, problem: Problem | OneVsRest, display: Display
) -> None:
    """Patterns of which the decision value is 0 look neither right nor wrong, and never join."""
    states, problems = getattr(final, "classes", [final]), getattr(problem, "classes", [problem])
    backend = problem.backend
    unseen = np.ones(backend.n, bool)
    for state, of_class in zip(states, problems, strict=True):
        for some in pieces(backend.n):
            outside = (state.role[some] == IDLE) & (of_class.signs[some] != 0)
            unseen[some] &= outside & (np.abs(state.gradient[some]) < 1e-30)
    if np.count_nonzero(unseen) <= backend.n // 100:
        return
    support = backend.gather(np.flatnonzero(states[0].alpha)[:1])
    seen_at_all = np.abs(backend.matvec(support, np.ones(1))[unseen]).max() >= 1e-30
    display.say(
        f"warning: for {np.count_nonzero(unseen):,} of {backend.n:,} training patterns the "
        "decision value is 0: "
        + (
            "the kernel cannot tell them apart; lower model.kernel.sigma (raise gamma), or scale "
            "the features (data.prepare.scaling)"
            if seen_at_all
            else "the kernel is too narrow for this data; raise model.kernel.sigma (lower gamma), "
            "or scale the features (data.prepare.scaling)"
        )
    )
