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
    from bigsvm.config import Config
    from bigsvm.display import Display
    from bigsvm.run_dir import RunDir
    from bigsvm.solvers.problem import Problem
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
    """Remembers the first SIGINT or SIGTERM, for the loop to end in order; the second one kills."""

    def __init__(self) -> None:
        self.signal: int | None = None

    @contextmanager
    def watched(self) -> Iterator["Interruption"]:
        """Watch for signals inside the block."""
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self._note) for number in numbers}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.signal = number
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
    time_left = TimeLeft(solver.tolerance, solver.max_iterations, solver.time_limit)
    with (
        open_dataset(as_spec(data.train)) as dataset,
        run_dir.locked(),
        shown(time_left) as display,
        connected(config.cluster, display.say, interruption) as cluster,
    ):
        if test is not None:  # a test set that does not fit is better known now than at the end
            open_test_set(test, dataset).close()
        training = set_up(config, run_dir, dataset, display, interruption, began, fresh, cluster)
        outcome = _run(training)
        if outcome.status != "interrupted":
            _warn_of_useless_kernel(outcome.final, training.problem, display)
        summary = _summary(training, outcome)
        if outcome.status != "interrupted":
            model = training.make_model(outcome.final)
            model.save(run_dir.model)
            if test is not None:
                summary["accuracy"] = accuracy(model, test)
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
    from bigsvm.memory import MemoryPlan, plan_memory
    from bigsvm.model import ModelFactory
    from bigsvm.solvers import ARITHMETIC, EXACT_UP_TO
    from bigsvm.solvers.block import BlockSchedule
    from bigsvm.solvers.column_cache import space_for_columns
    from bigsvm.solvers.exact import ExactSchedule
    from bigsvm.solvers.problem import Problem
    from bigsvm.store import verified_fingerprint
    from bigsvm.threads import available_threads
    from bigsvm.training import Schedule, Training

    if config.solver.schedule == "auto":
        schedule_name = "exact" if dataset.n <= EXACT_UP_TO else "block"
        solver = config.solver.model_copy(update={"schedule": schedule_name})
        config = config.model_copy(update={"solver": solver})
    model, solver, saving = config.model, config.solver, config.run
    kernel = Kernel(model.kernel.name, model.kernel.rate, model.kernel.coef0, model.kernel.degree)
    fingerprint = verified_fingerprint(dataset)
    initial = _initial(config, dataset.n)
    identity = {
        "data": fingerprint[:16],
        "rows": dataset.n,
        "features": dataset.d,
        "algorithm": model.algorithm,
        "C": model.C,
        **{f"kernel.{key}": value for key, value in asdict(kernel).items()},
        "schedule": solver.schedule,
        "hot_set": solver.hot_set if solver.schedule == "block" else None,
        "initial": initial,
        "arithmetic": ARITHMETIC,
    }
    checkpoints = Checkpoints(run_dir.checkpoints, identity, saving.keep_checkpoints)
    saved = None if fresh else checkpoints.latest()

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
    memory = plan_memory(solver.memory_limit + held, dataset, hot_rows)
    backend: Backend
    if cluster is None:
        backend = LocalBackend(dataset, kernel, memory.resident, solver.threads)
    else:
        from bigsvm.backends.dask import DaskBackend

        assert config.data.train is not None
        store = as_seen_from_anywhere(config.data.train)
        backend = DaskBackend(dataset, store, kernel, cluster, solver.memory_limit)
        memory = MemoryPlan(0, memory.resident + memory.solver)  # no rows are kept here
    problem = Problem(backend, dataset.labels(), model.C, model.algorithm, solver.tolerance)
    state = saved.state if saved else problem.start(initial, solver.hot_set)
    schedule: Schedule
    if solver.schedule == "exact":
        schedule = ExactSchedule(problem, space_for_columns(memory.solver, dataset.n))
    else:
        schedule = BlockSchedule(problem, kernel, memory.solver)

    if fresh:  # not before all that can be wrong has been seen to be right
        run_dir.clear()
    run_dir.begin(config.to_yaml(), state.iteration)
    if saved:
        display.say(f"going on at iteration {state.iteration:,}, from {run_dir.checkpoints}")
    about = {"algorithm": model.algorithm, "C": model.C, "fingerprint": fingerprint}
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
    )


def _run(training: "Training") -> "Outcome":
    """Train to the end, or to the loss of the cluster; either way the run is saved."""
    from bigsvm.training import Outcome

    try:
        return training.run()
    except ClusterLost:
        training.checkpoints.save(training.state, training.seconds)
        return Outcome("interrupted", training.state)


def _warn_of_useless_kernel(state: "State", problem: "Problem", display: "Display") -> None:
    """Patterns of which the decision value is 0 look neither right nor wrong, and never join."""
    import numpy as np

    from bigsvm.solvers.state import IDLE

    unseen = (state.role == IDLE) & (np.abs(state.gradient) < 1e-30)
    if np.count_nonzero(unseen) <= len(state.role) // 100:
        return
    support = problem.backend.gather(np.flatnonzero(state.alpha)[:1])
    seen_at_all = np.abs(problem.backend.matvec(support, np.ones(1))[unseen]).max() >= 1e-30
    display.say(
        f"warning: for {np.count_nonzero(unseen):,} of {len(state.role):,} training patterns the "
        "decision value is 0: "
        + (
            "the kernel cannot tell them apart; lower model.kernel.sigma (raise gamma), or scale "
            "the features (data.prepare.scaling)"
            if seen_at_all
            else "the kernel is too narrow for this data; raise model.kernel.sigma (lower gamma), "
            "or scale the features (data.prepare.scaling)"
        )
    )


def _initial(config: "Config", n: int) -> int:
    import numpy as np

    initial = config.solver.initial
    if initial == "random":
        return int(np.random.default_rng(config.solver.seed).integers(n))
    if not 0 <= initial < n:
        raise UserError(f"solver.initial = {initial}: the training set has rows 0 to {n - 1}")
    return initial


def _summary(training: "Training", outcome: "Outcome") -> dict[str, Any]:
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
        "train_seconds": round(training.seconds, 3),
        "peak_rss_bytes": peak_resident_set(),
        **({"overhead_seconds_a_pass": round(overhead, 6)} if overhead is not None else {}),
    }


def _tell(summary: dict[str, Any], path: Path) -> None:
    accuracy = summary.get("accuracy")
    print(
        f"{summary['status']} after {summary['iterations']:,} iterations, "
        f"{summary['train_seconds']:.1f} s: gap {summary['gap']:.2e}, "
        f"{summary['n_support']:,} support vectors, {summary['n_working']:,} working"
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
