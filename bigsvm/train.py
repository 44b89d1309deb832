"""Train a model: python -m bigsvm.train CONFIG.yaml. The same command again goes on."""

import json
import os
import signal
import sys
import time
from argparse import Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from threading import Timer
from types import FrameType
from typing import TYPE_CHECKING, Any

from bigsvm import cli
from bigsvm.errors import ClusterLost, UserError

if TYPE_CHECKING:
    from bigsvm.backends import Backend
    from bigsvm.cluster import Cluster
    from bigsvm.config import Config, SolverConfig
    from bigsvm.display import Display
    from bigsvm.labels import Classes
    from bigsvm.run_dir import RunDir
    from bigsvm.solvers.class_states import ClassStates
    from bigsvm.solvers.one_vs_rest import OneVsRest
    from bigsvm.solvers.problem import Problem
    from bigsvm.solvers.reweight import Reweighting
    from bigsvm.solvers.state import State
    from bigsvm.store import Dataset
    from bigsvm.training import Outcome, Training

EXAMPLES = """examples:
  python -m bigsvm.train configs/quickstart.yaml
  python -m bigsvm.train configs/miniboone.yaml --set model.C=10 --run-dir runs/miniboone-C10
  python -m bigsvm.train configs/miniboone.yaml --set solver.max_iterations=80000    (goes on)
  python -m bigsvm.train configs/miniboone.yaml --fresh                              (begins anew)

Ctrl-C or SIGTERM: the run saves itself and leaves. The same command again goes on from there, to
the same model, bit for bit. Look at the models so far with: python -m bigsvm.evaluate RUN_DIR
"""


class Interruption:
    """Remembers the first SIGINT, SIGTERM or SIGHUP, for the loop to end in order.

    The second one kills, but for SIGHUP: a terminal that closes may send several.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._on_terminal = [number for number in (1, 2) if os.isatty(number)]

    @contextmanager
    def watched(self) -> Iterator["Interruption"]:
        """Watch for signals inside the block."""
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup
            numbers.append(signal.SIGHUP)
        before = {number: signal.signal(number, self._note) for number in numbers}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:  # the terminal is gone: what is still said must find a place
            nowhere = os.open(os.devnull, os.O_WRONLY)
            for gone in self._on_terminal:
                os.dup2(nowhere, gone)
        elif self.signal is not None:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.signal = self.signal or number
        # Not print: it may be at work just now. And the reader may be gone (`2>&1 | tee log`).
        with suppress(OSError):
            os.write(2, b"\nsaving, then leaving (once more to leave at once)\n")

    def __call__(self) -> bool:
        return self.signal is not None


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    arguments = parse_arguments(argv)
    began = time.monotonic()
    from bigsvm.config import load_config

    config = load_config(arguments.config, arguments.set)
    path = arguments.run_dir or Path(config.run.dir or f"runs/{arguments.config.stem}")
    with Interruption().watched() as interruption:
        try:
            outcome = train(config, path, arguments.fresh, interruption, began)
        except ClusterLost:
            if not interruption():
                raise
            outcome = "interrupted"
    return (
        0 if interruption.signal is None or outcome != "interrupted" else 128 + interruption.signal
    )


def parse_arguments(argv: Sequence[str] | None) -> Namespace:
    """Read the command line."""
    parser = cli.Arguments(
        prog="python -m bigsvm.train",
        description="Train a sparse kernel SVM; the same command again goes on where it stopped.",
        epilog=EXAMPLES,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("config", type=Path, metavar="CONFIG.yaml")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="replace a value of the config, for instance solver.max_iterations=40000; repeatable",
    )
    parser.add_argument(
        "--run-dir", type=Path, help="where the run lives (default: run.dir, or runs/CONFIG)"
    )
    parser.add_argument(
        "--fresh", action="store_true", help="forget a former run in that directory"
    )
    return parser.parse_args(argv)


def train(
    config: "Config", path: Path, fresh: bool, interruption: Interruption, began: float
) -> str:
    """Train as configured in the run directory `path`; return the status."""
    from bigsvm.cluster import connected
    from bigsvm.data_sets import as_spec, located
    from bigsvm.display import TimeLeft, shown
    from bigsvm.labels import sums_of
    from bigsvm.model import load_model
    from bigsvm.progress import shown_progress
    from bigsvm.run_dir import RunDir
    from bigsvm.scoring import accuracy, open_test_set
    from bigsvm.store import open_dataset

    run_dir = RunDir(path)
    with shown_progress() as progress:
        data = located(config.data, progress)
    config = config.model_copy(update={"data": data})
    assert data.train is not None
    test = as_spec(data.test) if data.test is not None else None
    solver = config.solver
    with (
        open_dataset(as_spec(data.train)) as dataset,
        run_dir.locked(),
        shown(
            TimeLeft(
                solver.tolerance,
                solver.max_iterations * sums_of(dataset.classes),
                solver.time_limit,
            )
        ) as display,
        connected(config.cluster, display.say, interruption) as cluster,
    ):
        if test is not None:  # a test set that does not fit is better known now than at the end
            open_test_set(test, dataset).close()
        training = set_up(config, run_dir, dataset, display, interruption, began, fresh, cluster)
        outcome = _run(training)
        if outcome.status != "interrupted":
            _warn_of_useless_kernel(outcome.final, training.problem, display)
        summary = _summary(training, outcome, dataset.classes)
        if outcome.status != "interrupted":
            training.save_model(outcome.final, run_dir.model)
            if test is not None:
                summary["accuracy"] = accuracy(load_model(run_dir.model), test)
        run_dir.write_text(run_dir.summary, json.dumps(summary, indent=2) + "\n")
    _tell(summary, path)
    if cluster is not None and cluster.loss is not None:
        raise cluster.loss
    return outcome.status


def set_up(
    config: "Config",
    run_dir: "RunDir",
    dataset: "Dataset",
    display: "Display",
    interruption: Interruption,
    began: float,
    fresh: bool = False,
    cluster: "Cluster | None" = None,
) -> "Training":
    """Everything a training needs, from its data to the state it starts from."""
    import numba

    from bigsvm.backends.local import LocalBackend
    from bigsvm.checkpoint import Checkpoints
    from bigsvm.data_sets import as_seen_from_anywhere
    from bigsvm.kernels import Kernel, warm_up
    from bigsvm.labels import sums_of
    from bigsvm.memory import MemoryPlan, plan_memory
    from bigsvm.model import ModelFactory
    from bigsvm.solvers import ARITHMETIC, EXACT_UP_TO
    from bigsvm.solvers.block import BlockSchedule
    from bigsvm.solvers.column_cache import space_for_columns
    from bigsvm.solvers.exact import ExactSchedule
    from bigsvm.solvers.in_turns import BlockInTurns, ExactInTurns
    from bigsvm.solvers.one_vs_rest import OneVsRest
    from bigsvm.solvers.problem import Problem
    from bigsvm.store import verified_fingerprint
    from bigsvm.threads import available_threads
    from bigsvm.training import Schedule, Training
    from bigsvm.weights import bytes_a_pattern, read_weights

    if config.solver.schedule == "auto":
        schedule_name = "exact" if dataset.n <= EXACT_UP_TO else "block"
        solver = config.solver.model_copy(update={"schedule": schedule_name})
        config = config.model_copy(update={"solver": solver})
    model, solver, saving = config.model, config.solver, config.run
    kernel = Kernel(model.kernel.name, model.kernel.rate, model.kernel.coef0, model.kernel.degree)
    initial = initial_pattern(config.solver, dataset.n)
    weights = read_weights(model, dataset)
    C = model.plain_C(dataset.n, dataset.d)
    fingerprint = verified_fingerprint(dataset)
    reweighting = _reweighting(config)
    if reweighting and len(dataset.classes) > 2:
        raise UserError(
            f"model.algorithm = rwsvm: is for two classes, and {dataset.path} has "
            f"{len(dataset.classes)}; choose another one, or set one class against the rest "
            "(`positive` in data.train)"
        )
    identity = {
        "data": fingerprint[:16],
        "rows": dataset.n,
        "features": dataset.d,
        "algorithm": model.algorithm,
        "C": C,
        **{f"kernel.{key}": value for key, value in asdict(kernel).items()},
        "schedule": solver.schedule,
        "hot_set": solver.hot_set if solver.schedule == "block" else None,
        "initial": initial,
        "arithmetic": ARITHMETIC,
        "intercept": model.intercept or None,
        **weights.identity,
        # What ends a round decides about the next one. More rounds may always follow.
        "reweight": reweighting and model.reweight.model_dump(),
        "tolerance of a round": reweighting and solver.tolerance,
    }
    checkpoints = Checkpoints(run_dir.checkpoints, identity, saving.keep_checkpoints)
    saved = None if fresh else checkpoints.latest()
    if saved and reweighting and saved.state.round > reweighting.rounds:
        raise UserError(
            f"{run_dir.path}: is in round {saved.state.round} already, and model.rounds = "
            f"{reweighting.rounds}; use another --run-dir, or --fresh to begin anew"
        )

    if solver.threads is not None:
        numba.set_num_threads(min(solver.threads, available_threads()))
    if_slow = Timer(2.0, display.say, ["compiling the kernels; only the first start takes so long"])
    if_slow.start()
    try:
        warm_up(kernel)
    finally:
        if_slow.cancel()
    hot_rows = 6 * solver.hot_set if solver.schedule == "block" else 0
    held = saved.state.nbytes if saved else 0
    sums = sums_of(dataset.classes)
    for_weights = bytes_a_pattern(model) * sums
    memory = plan_memory(solver.memory_limit + held, dataset, hot_rows, for_weights, sums=sums)
    backend: Backend
    if cluster is None:
        backend = LocalBackend(dataset, kernel, memory.resident, solver.threads)
    else:
        from bigsvm.backends.dask import DaskBackend

        assert config.data.train is not None
        store = as_seen_from_anywhere(config.data.train)
        backend = DaskBackend(dataset, store, kernel, cluster, solver.memory_limit, sums)
        memory = MemoryPlan(0, memory.resident + memory.solver)  # no rows are kept here
    what = (
        weights.C,
        "mfw" if model.algorithm == "mfw" else "fw",
        solver.tolerance,
        weights.margin if saved is None or saved.state.margin is None else saved.state.margin,
        model.intercept,
    )
    exact = solver.schedule == "exact"
    problem: Problem | OneVsRest
    schedule: Schedule
    if sums == 1:
        problem = Problem(backend, dataset.labels(), *what)
        if exact:
            schedule = ExactSchedule(problem, space_for_columns(memory.solver, dataset.n))
        else:
            schedule = BlockSchedule(problem, kernel, memory.solver)
    else:
        problem = OneVsRest(backend, dataset.labels(), sums, *what)
        limit = solver.max_iterations  # of each class
        if exact:
            space = space_for_columns(memory.solver, dataset.n)
            schedule = ExactInTurns(problem, space, limit)
        else:
            schedule = BlockInTurns(problem, kernel, memory.solver, limit)
    state = saved.state if saved else problem.start(initial, solver.hot_set)

    if fresh:  # not before all that can be wrong has been seen to be right
        run_dir.clear()
    run_dir.begin(config.to_yaml(), state.iteration)
    if saved:
        display.say(f"going on at iteration {state.iteration:,}, from {run_dir.checkpoints}")
    about = {"algorithm": model.algorithm, "C": C, "fingerprint": fingerprint}
    about |= {key: value for key, value in weights.identity.items() if value is not None}
    return Training(
        problem,
        schedule,
        state,
        solver,
        saving,
        run_dir,
        checkpoints,
        display,
        ModelFactory(dataset, backend, asdict(kernel), about),
        lambda: interruption() or (cluster is not None and cluster.loss is not None),
        saved.seconds if saved else 0.0,
        began,
        reweighting,
    )


def _run(training: "Training") -> "Outcome":
    """Train to the end, or to the loss of the cluster; either way the run is saved."""
    from bigsvm.training import Outcome

    try:
        return training.run()
    except ClusterLost:
        training.checkpoints.save(training.state, training.seconds)
        return Outcome("interrupted", training.state)


def _warn_of_useless_kernel(
    final: "State | ClassStates", problem: "Problem | OneVsRest", display: "Display"
) -> None:
    """Patterns of which the decision value is 0 look neither right nor wrong, and never join."""
    import numpy as np

    from bigsvm.solvers.state import IDLE

    states, problems = getattr(final, "classes", [final]), getattr(problem, "classes", [problem])
    backend = problem.backend
    unseen = np.ones(backend.n, bool)
    for state, of_class in zip(states, problems, strict=True):
        unseen &= (state.role == IDLE) & (np.abs(state.gradient) < 1e-30) & (of_class.signs != 0)
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


def _reweighting(config: "Config") -> "Reweighting | None":
    from bigsvm.solvers.reweight import Reweighting

    model = config.model
    if model.algorithm != "rwsvm":
        return None
    return Reweighting(model.rounds, **model.reweight.model_dump())


def initial_pattern(solver: "SolverConfig", n: int) -> int:
    """The pattern that all weight lies on at first, of n."""
    import numpy as np

    initial = solver.initial
    if initial == "random":
        return int(np.random.default_rng(solver.seed).integers(n))
    if not 0 <= initial < n:
        raise UserError(f"solver.initial = {initial}: the training set has rows 0 to {n - 1}")
    return initial


def _summary(training: "Training", outcome: "Outcome", classes: "Classes") -> dict[str, Any]:
    from bigsvm.memory import peak_resident_set

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


def _by_class(training: "Training", outcome: "Outcome", labels: "Classes") -> list[dict[str, Any]]:
    """What each class against the rest has come to, where there are more than two."""
    from bigsvm.solvers.one_vs_rest import OneVsRest

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


def _tell(summary: dict[str, Any], path: Path) -> None:
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


if __name__ == "__main__":
    sys.exit(cli.run(main))
