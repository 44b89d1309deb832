"""Train a model: python -m bigsvm.train CONFIG.yaml. The same command again goes on."""

import json
import signal
import sys
import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from bigsvm import cli
from bigsvm.errors import UserError

if TYPE_CHECKING:
    from bigsvm.config import Config
    from bigsvm.store import Dataset
    from bigsvm.training import Outcome

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
        print("\nsaving, then leaving (once more to leave at once)", file=sys.stderr)

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
        outcome = train(config, path, arguments.fresh, interruption, began)
    return (
        0 if interruption.signal is None or outcome != "interrupted" else 128 + interruption.signal
    )


def parse_arguments(argv: Sequence[str] | None) -> Namespace:
    """Read the command line."""
    parser = ArgumentParser(
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
    from bigsvm.data_sets import as_spec, located
    from bigsvm.display import TimeLeft, shown
    from bigsvm.progress import shown_progress
    from bigsvm.run_dir import RunDir
    from bigsvm.store import open_dataset

    run_dir = RunDir(path)
    with run_dir.locked():
        if fresh:
            run_dir.clear()
        with shown_progress() as progress:
            data = located(config.data, progress)
        config = config.model_copy(update={"data": data})
        assert data.train is not None
        solver = config.solver
        time_left = TimeLeft(solver.tolerance, solver.max_iterations, solver.time_limit)
        with open_dataset(as_spec(data.train)) as dataset, shown(time_left) as display:
            training = _set_up(config, run_dir, dataset, display, interruption, began)
            outcome = training.run()
            model = training.model_of(training.state)
        summary = _summary(training, outcome)
        if outcome.status != "interrupted":
            model.save(run_dir.model)
            if data.test is not None:
                from bigsvm.scoring import accuracy

                summary["accuracy"] = accuracy(model, as_spec(data.test))
        run_dir.write_text(run_dir.summary, json.dumps(summary, indent=2) + "\n")
    _tell(summary, path)
    return outcome.status


def _set_up(
    config: "Config",
    run_dir: Any,
    dataset: "Dataset",
    display: Any,
    interruption: Interruption,
    began: float,
) -> Any:
    """Everything a training needs, from its data to the state it starts from."""
    import numpy as np

    from bigsvm.backends.local import LocalBackend
    from bigsvm.checkpoint import Checkpoints
    from bigsvm.kernels import Kernel, warm_up
    from bigsvm.memory import plan_memory
    from bigsvm.model import Model
    from bigsvm.solvers.exact import ExactSchedule
    from bigsvm.solvers.problem import Problem
    from bigsvm.solvers.state import State
    from bigsvm.store import fingerprint
    from bigsvm.training import Training

    options = config.model.kernel
    kernel = Kernel(options.name, options.rate, options.coef0, options.degree)
    content = fingerprint(dataset)
    if dataset.recorded_fingerprint not in (None, content):
        raise UserError(
            f"{dataset.path}: its content is not what was written (fingerprint {content[:12]}, "
            f"recorded {dataset.recorded_fingerprint[:12]}); the store is damaged, make it again"
        )
    initial = _initial(config, dataset.n)
    identity = {
        "data": content,
        "rows": dataset.n,
        "features": dataset.d,
        "algorithm": config.model.algorithm,
        "C": config.model.C,
        "kernel": asdict(kernel),
        "schedule": config.solver.schedule,
        "initial": initial,
    }
    checkpoints = Checkpoints(run_dir.checkpoints, identity, config.run.keep_checkpoints)
    saved = checkpoints.latest()
    run_dir.summary.unlink(missing_ok=True)
    run_dir.write_text(run_dir.config, config.to_yaml())

    warm_up(kernel)
    plan = plan_memory(config.solver.memory_limit, dataset)
    backend = LocalBackend(dataset, kernel, plan.resident, config.solver.threads)
    problem = Problem(
        backend,
        dataset.labels(),
        config.model.C,
        config.model.algorithm,
        config.solver.tolerance,
    )
    state = saved.state if saved else problem.start(initial)
    schedule = ExactSchedule(problem, plan.solver)
    run_dir.rewind_metrics(state.iteration if saved else -1)
    if saved:
        display.say(f"going on at iteration {state.iteration:,}, from {run_dir.checkpoints}")
    about = {
        "algorithm": config.model.algorithm,
        "C": config.model.C,
        "feature_names": dataset.feature_names,
        "source": dataset.source or dataset.path,
        "fingerprint": content,
        "n_train": dataset.n,
    }

    def model_of(state: State) -> Model:
        support = np.flatnonzero(state.alpha)
        return Model(
            backend.gather(support),
            state.alpha[support] * dataset.labels()[support],
            support,
            asdict(kernel),
            dataset.classes,
            dataset.scaling,
            about | {"iteration": state.iteration, "n_working": state.n_working},
        )

    return Training(
        problem,
        schedule,
        state,
        config.solver,
        config.run,
        run_dir,
        checkpoints,
        display,
        model_of,
        interruption,
        saved.seconds if saved else 0.0,
        began,
    )


def _initial(config: "Config", n: int) -> int:
    import numpy as np

    initial = config.solver.initial
    if initial == "random":
        return int(np.random.default_rng(config.solver.seed).integers(n))
    if not 0 <= initial < n:
        raise UserError(f"solver.initial = {initial}: the training set has rows 0 to {n - 1}")
    return initial


def _summary(training: Any, outcome: "Outcome") -> dict[str, Any]:
    import resource

    state = training.state
    return {
        "status": outcome.status,
        "iterations": state.iteration,
        "passes": state.passes,
        "gap": state.gap,
        "true_gap": outcome.true_gap,
        "drift": outcome.drift,
        "objective": state.objective,
        "n_support": state.n_support,
        "n_working": state.n_working,
        "train_seconds": round(training.seconds, 3),
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
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
    if summary["status"] == "interrupted":
        print(f"saved in {path}; the same command goes on from there")
    else:
        print(f"model: {path / 'model.safetensors'}; snapshots: python -m bigsvm.evaluate {path}")


if __name__ == "__main__":
    sys.exit(cli.run(main))
