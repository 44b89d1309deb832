"""A training run from its config to its summary, as `python -m bigsvm.train` does it."""

from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from bigsvm.backends.memory import check_chunk_size
from bigsvm.cluster.workers import connect_if_any
from bigsvm.config import Config
from bigsvm.core.errors import ClusterLost, UserError
from bigsvm.core.labels import n_outputs_for
from bigsvm.core.messages import shell_command
from bigsvm.models.evaluation import final_scores
from bigsvm.models.model import load_model
from bigsvm.models.scoring import Spec, open_test_set
from bigsvm.preparation.data_sets import dataset_spec, resolve_data
from bigsvm.solvers.solve import Outcome
from bigsvm.stores.fingerprint import verified_fingerprint
from bigsvm.stores.store import Dataset, open_dataset
from bigsvm.terminal.compiling import notify_compilation
from bigsvm.terminal.progress import show_progress
from bigsvm.terminal.signals import GracefulExit
from bigsvm.training.build import AlreadyFinished, build_training
from bigsvm.training.display import TimeLeft, open_display
from bigsvm.training.loop import Session, Stopwatch, Training
from bigsvm.training.next_step import TrainCommand, next_step
from bigsvm.training.run_dir import RunDir
from bigsvm.training.summary import print_finished, print_summary, summarise, warn_if_useless
from bigsvm.training.trackers import check_trackers, track_run
from bigsvm.training.validation import open_validation


def train(
    config: Config,
    command: TrainCommand,
    path: Path,
    fresh: bool,
    began: float,
    graceful_exit: GracefulExit,
    wait_for_steps: Callable[[], None] = lambda: None,
) -> str:
    """Start or resume the run in a directory, and train until it is done or interrupted.

    Parameters
    ----------
    config : Config
    command : TrainCommand
        Shown at the end, as the command that resumes.
    path : Path
        The run directory.
    fresh : bool
        Discard an earlier run in that directory instead of resuming it.
    began : float
        When the command began, by `time.monotonic`.
    graceful_exit : GracefulExit
    wait_for_steps : callable
        See `compile_ahead`.

    Returns
    -------
    str
        The status: converged, max_iterations, time_limit, stopped_early or interrupted.
    """
    with notify_compilation() as compile_timer:
        stopwatch = Stopwatch(began, compile_timer)
        try:
            return _train(config, command, path, fresh, stopwatch, graceful_exit, wait_for_steps)
        except ClusterLost:
            if not graceful_exit():
                raise
            return "interrupted"


def _train(
    config: Config,
    command: TrainCommand,
    path: Path,
    fresh: bool,
    stopwatch: Stopwatch,
    graceful_exit: GracefulExit,
    wait_for_steps: Callable[[], None],
) -> str:
    """Train as configured in the run directory `path`; return the status."""
    run_dir = RunDir(path)
    check_trackers(config.run.log_to)
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
        connect_if_any(config.cluster, display.log, graceful_exit) as cluster,
        open_validation(config, dataset) as validation_rows,
        ExitStack() as stack,
    ):
        missing = dataset.missing_chunk_warnings()
        if test is not None:
            missing += _check_test_set(test, dataset, solver.memory_limit)
        for line in missing:
            display.log(f"warning: {line}")
        stopwatch.start_training()
        try:
            session = Session(display, stopwatch, graceful_exit, cluster)
            training = build_training(config, run_dir, dataset, session, fresh, validation_rows)
        except AlreadyFinished as finished:
            if test is not None and "accuracy" not in finished.summary:
                # The test set could not be read when the training ended, or is new.
                _add_test_scores(finished.summary, run_dir, test)
            print_finished(finished.summary, path)
            return str(finished.summary["status"])
        wait_for_steps()
        stack.enter_context(track_run(path, config.run.log_to, graceful_exit))
        outcome = _run(training)
        if outcome.status != "interrupted":
            warn_if_useless(outcome, training, display)
        summary = summarise(training, outcome, dataset.classes)
        if outcome.status != "interrupted":
            _save_final_model(training, outcome, summary)
        run_dir.write_summary(summary)
        if outcome.status != "interrupted" and test is not None:
            _add_test_scores(summary, run_dir, test)
    print_summary(summary, path, next_step(summary, command, path, solver, outcome.dropped))
    if cluster is not None and cluster.loss is not None:
        raise cluster.loss
    return outcome.status


def _check_test_set(test: Spec, dataset: Dataset, memory_limit: int) -> list[str]:
    """Report mistakes in the test set now, not after the training; returns warnings."""
    with open_test_set(test, dataset) as test_set:
        check_chunk_size(memory_limit, test_set)
        verified_fingerprint(test_set)
        return test_set.missing_chunk_warnings()


def _save_final_model(training: Training, outcome: Outcome, summary: dict[str, Any]) -> None:
    run_dir = training.run_dir
    # Only for a converged model: any other equals the snapshot of its iteration, byte for byte.
    gap = summary["true_relative_gap"] if outcome.status == "converged" else None
    if _is_calibrated(run_dir.model):
        training.session.display.log(
            f"warning: {run_dir.model} was calibrated, and its probabilities are not those of the "
            f"new model: run {shell_command('calibrate', run_dir.path)} again"
        )
    training.save_model(outcome.final, run_dir.model, is_last=True, relative_gap=gap)
    if training.validation is not None:
        training.validation.add(run_dir.model, training.seconds, final=True)
        summary["validation"] = training.validation.summary()


def _is_calibrated(model: Path) -> bool:
    """Whether there is a model with probabilities; a damaged one is overwritten anyway."""
    with suppress(UserError, OSError):
        return load_model(model).calibration is not None
    return False


def _add_test_scores(summary: dict[str, Any], run_dir: RunDir, test: Spec) -> None:
    """Score the final model, and write the summary with its scores."""
    try:
        summary |= final_scores(load_model(run_dir.model), test)
    except UserError as error:
        raise UserError(
            f"{error} (the training is done and its model saved: "
            f"{shell_command('evaluate', run_dir.path)} --test STORE)"
        ) from error
    run_dir.write_summary(summary)


def _run(training: Training) -> Outcome:
    """Run the training loop; if the cluster is lost, save a checkpoint."""
    try:
        return training.run()
    except ClusterLost:
        training.checkpoint()
        return Outcome("interrupted", training.task.state)
