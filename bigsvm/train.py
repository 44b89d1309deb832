"""Train a model: python -m bigsvm.train CONFIG.yaml. The same command again goes on."""

import sys
import time
from argparse import Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bigsvm import cli
from bigsvm.core.errors import ClusterLost, UserError
from bigsvm.terminal.signals import GracefulExit
from bigsvm.training.next_step import TrainCommand, next_step

if TYPE_CHECKING:
    from bigsvm.config import Config
    from bigsvm.training.loop import Outcome, Training

EXAMPLES = """examples:
  python -m bigsvm.train configs/quickstart.yaml
  python -m bigsvm.train configs/miniboone.yaml --set model.C=10 --run-dir runs/miniboone-C10
  python -m bigsvm.train configs/miniboone.yaml --set solver.max_iterations=80000    (goes on)
  python -m bigsvm.train configs/miniboone.yaml --fresh                              (begins anew)

Ctrl-C or SIGTERM: the run saves itself and leaves. The same command again goes on from there, to
the same model, bit for bit. Look at the models so far with: python -m bigsvm.evaluate RUN_DIR
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    arguments = parse_arguments(argv)
    began = time.monotonic()
    from bigsvm.config.file import load_config
    from bigsvm.terminal.compiling import notify_compilation

    config = load_config(arguments.config, arguments.set)
    path = arguments.run_dir or Path(config.run.dir or f"runs/{arguments.config.stem}")
    program = cli.Arguments.called_as
    command = TrainCommand(program, arguments.config, arguments.set, arguments.run_dir)
    with GracefulExit().handle_signals() as graceful_exit, notify_compilation():
        try:
            outcome = train(config, path, arguments.fresh, graceful_exit, began, command)
        except ClusterLost:
            if not graceful_exit():
                raise
            outcome = "interrupted"
    return (
        0
        if graceful_exit.signal is None or outcome != "interrupted"
        else 128 + graceful_exit.signal
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
    config: "Config",
    path: Path,
    fresh: bool,
    graceful_exit: GracefulExit,
    began: float,
    command: TrainCommand,
) -> str:
    """Train as configured in the run directory `path`; return the status."""
    from bigsvm.backends.memory import check_chunk_size
    from bigsvm.cluster.start import connect
    from bigsvm.core.labels import n_outputs_for
    from bigsvm.models.final_scores import final_scores
    from bigsvm.models.model import load_model
    from bigsvm.models.scoring import open_test_set
    from bigsvm.preparation.data_sets import dataset_spec, resolve_data
    from bigsvm.stores.fingerprint import verified_fingerprint
    from bigsvm.stores.store import open_dataset
    from bigsvm.terminal.progress import show_progress
    from bigsvm.training.build import build_training
    from bigsvm.training.display import TimeLeft, open_display
    from bigsvm.training.finished import AlreadyFinished
    from bigsvm.training.run_dir import RunDir
    from bigsvm.training.summary import print_finished, print_summary, summarise, warn_if_useless

    run_dir = RunDir(path)
    with graceful_exit.exit_immediately(), show_progress() as progress:
        data = resolve_data(config.data, progress)
    config = config.model_copy(update={"data": data})
    assert data.train is not None
    test = dataset_spec(data.test) if data.test is not None else None
    solver = config.solver
    with (
        open_dataset(dataset_spec(data.train)) as dataset,
        run_dir.locked(),
        open_display(
            TimeLeft(
                solver.stop_rule,
                solver.max_iterations * n_outputs_for(dataset.classes),
                solver.time_limit,
            )
        ) as display,
        connect(config.cluster, display.log, graceful_exit) as cluster,
    ):
        absences = dataset.missing_chunk_warnings()
        if test is not None:  # what is wrong with it is better known now than at the end
            with open_test_set(test, dataset) as test_set:
                check_chunk_size(solver.memory_limit, test_set)
                verified_fingerprint(test_set)
                absences += test_set.missing_chunk_warnings()
        for line in absences:
            display.log(f"warning: {line}")
        try:
            training = build_training(
                config, run_dir, dataset, display, graceful_exit, began, fresh, cluster
            )
        except AlreadyFinished as finished:
            print_finished(finished.summary, path)
            return str(finished.summary["status"])
        outcome = _run(training)
        if outcome.status != "interrupted":
            warn_if_useless(outcome, training, display)
        summary = summarise(training, outcome, dataset.classes)
        if outcome.status != "interrupted":
            # Of a converged model only: any other is the same file as the snapshot there.
            gap = summary["true_relative_gap"] if outcome.status == "converged" else None
            training.save_model(outcome.final, run_dir.model, is_last=True, relative_gap=gap)
        run_dir.write_summary(summary)
        if outcome.status != "interrupted" and test is not None:
            with _training_is_done(path):
                summary |= final_scores(load_model(run_dir.model), test)
            run_dir.write_summary(summary)
    print_summary(summary, path, next_step(summary, command, path, solver, outcome.dropped))
    if cluster is not None and cluster.loss is not None:
        raise cluster.loss
    return outcome.status


@contextmanager
def _training_is_done(path: Path) -> Iterator[None]:
    """Say that of a test set that has become unreadable meanwhile nothing is lost but its score."""
    try:
        yield
    except UserError as mistake:
        raise UserError(
            f"{mistake} (the training is done and its model saved: python -m bigsvm.evaluate "
            f"{path} --test STORE)"
        ) from mistake


def _run(training: "Training") -> "Outcome":
    """Train to the end, or to the loss of the cluster; either way the run is saved."""
    from bigsvm.training.loop import Outcome

    try:
        return training.run()
    except ClusterLost:
        training.checkpoints.save(training.state, training.seconds, training.kernel_values)
        return Outcome("interrupted", training.state)


if __name__ == "__main__":
    sys.exit(cli.run(main))
