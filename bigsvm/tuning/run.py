"""A tuning from its config to its best point, as `python -m bigsvm.tune` does it."""

from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path

import numpy as np

from bigsvm.cluster.workers import connect_if_any
from bigsvm.config import Config
from bigsvm.core.compiled import available_threads
from bigsvm.core.errors import ClusterLost
from bigsvm.core.messages import shell_command
from bigsvm.files.atomic import write_text
from bigsvm.kernels import warm_up
from bigsvm.preparation.data_sets import absolute_spec, dataset_spec, resolve_data
from bigsvm.solvers.precomputed import Limits, solve
from bigsvm.stores.store import Dataset, open_dataset
from bigsvm.terminal.compiling import notify_compilation
from bigsvm.terminal.logs import log, print_result
from bigsvm.terminal.progress import show_progress
from bigsvm.terminal.signals import GracefulExit
from bigsvm.training.run_dir import RunDir
from bigsvm.tuning.build import Tuning, build_tuning, matrices_that_fit
from bigsvm.tuning.cross_validation import FoldResult, FoldTask, check_overflow
from bigsvm.tuning.dask import validate_on_cluster
from bigsvm.tuning.local import validate_locally
from bigsvm.tuning.results import ResultStore
from bigsvm.tuning.table import (
    Point,
    edges_reached,
    heading,
    line,
    points_of,
    ranked,
    write_table,
)

Source = Generator[tuple[FoldTask, FoldResult], None, None]
SHOWN = 10  # points of the table that are printed


class TuneDir(RunDir):
    """The directory of a tuning; none of its files has the name of a file of a training."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.points = path / "points"
        self.folders = (self.points,)
        self.config = path / "tune.yaml"
        self.table = path / "tune.csv"
        self.best = path / "best.yaml"

    def heat_map(self, algorithm: str) -> Path:
        """The path of the heat map of an algorithm."""
        return self.path / f"heat-map-{algorithm}.png"


def tune(config: Config, path: Path, fresh: bool, graceful_exit: GracefulExit) -> bool:
    """Start or resume the tuning in a directory.

    Parameters
    ----------
    config : Config
    path : Path
        The directory of the tuning.
    fresh : bool
        Discard an earlier tuning in that directory instead of resuming it.
    graceful_exit : GracefulExit

    Returns
    -------
    bool
        Whether it was finished; otherwise it was interrupted.
    """
    with notify_compilation():
        try:
            return _tune(config, TuneDir(path), fresh, graceful_exit)
        except ClusterLost:
            if not graceful_exit():
                raise
            return False


def _tune(config: Config, run_dir: TuneDir, fresh: bool, graceful_exit: GracefulExit) -> bool:
    with graceful_exit.exit_immediately(), show_progress() as progress:
        data = resolve_data(config.data, progress)
    assert data.train is not None
    with open_dataset(dataset_spec(data.train)) as dataset, run_dir.locked():
        tuning = build_tuning(config, dataset, log)
        for line in dataset.missing_chunk_warnings():
            log(f"warning: {line}")
        classes = len(dataset.classes)
        results = ResultStore(run_dir.points, tuning.identity, tuning.grid, classes)
        found, missing = ({}, tuning.tasks) if fresh else results.load(tuning.tasks)
        if fresh:
            results.clear()
        write_text(run_dir.config, config.to_yaml())
        _log_plan(tuning, dataset.d, missing)
        if missing:
            store = absolute_spec(data.train)
            with connect_if_any(config.cluster, log, graceful_exit) as cluster:
                if cluster is None:
                    source = _validate_in_threads(config, tuning, dataset, missing, graceful_exit)
                else:
                    source = validate_on_cluster(cluster, store, tuning, missing, graceful_exit)
                found |= _collect(source, tuning, results, len(found))
    if len(found) < len(tuning.tasks):
        return False
    _write_results(config, run_dir, tuning, found)
    return True


def _validate_in_threads(
    config: Config,
    tuning: Tuning,
    dataset: Dataset,
    tasks: list[FoldTask],
    interrupted: Callable[[], bool],
) -> Source:
    # Compile, or load compiled code, before the free memory is measured.
    warm_up(tuning.grid.kernels[0])
    solve(
        np.eye(2, dtype=np.float32), np.array([-1, 1]), [1.0], "mfw", Limits(tuning.grid.stop_rule)
    )
    threads = min(config.solver.threads or available_threads(), available_threads())
    return validate_locally(
        dataset.gather(tuning.index),
        tuning.split,
        tuning.grid,
        tasks,
        threads,
        matrices_that_fit(config, len(tuning.index), dataset.d),
        interrupted,
    )


def _collect(
    source: Source, tuning: Tuning, results: ResultStore, before: int
) -> dict[FoldTask, FoldResult]:
    """Save the result of each fold as it arrives, and show the progress."""
    found = {}
    with show_progress() as progress, closing(source):
        progress("folds", before, len(tuning.tasks))
        for task, result in source:
            check_overflow(result, task, tuning.grid)
            found[task._replace(C=())] = results.save(task, result)
            progress("folds", before + len(found), len(tuning.tasks))
    return found


def _write_results(
    config: Config, run_dir: TuneDir, tuning: Tuning, found: dict[FoldTask, FoldResult]
) -> None:
    """Write the table, the heat maps and the best config, and print the best points."""
    from bigsvm.tuning.heat_map import plot_heat_map  # matplotlib takes a second to import

    grid, options = tuning.grid, tuning.options
    table = points_of(found, tuning.split, grid, tuning.sigmas)
    write_table(run_dir.table, table)
    order = ranked(table, options.metric)
    for algorithm in grid.algorithms:
        of_algorithm = [point for point in order if point.algorithm == algorithm]
        plot_heat_map(run_dir.heat_map(algorithm), of_algorithm, of_algorithm[0], options.metric)
        if len(grid.algorithms) > 1:
            path = run_dir.path / f"best-{algorithm}.yaml"
            write_text(path, _best_config(config, of_algorithm[0], run_dir))
        print(f"{algorithm}, the best {min(SHOWN, len(of_algorithm))} of {len(of_algorithm)}:")
        lines = [line(point, options.metric) for point in of_algorithm[:SHOWN]]
        print(heading(options.metric), *lines, sep="\n")
    write_text(run_dir.best, _best_config(config, order[0], run_dir))
    if unfinished := sum(point.converged < options.folds for point in table):
        print(
            f"{unfinished} of {len(table)} points reached tune.max_iterations = "
            f"{options.max_iterations:,} in some fold"
        )
    for key in edges_reached(order[0], grid.C, tuning.sigmas):
        print(f"the best {key} is at the edge of its grid: extend tune.{key}")
    print(f"table: {run_dir.table}; picture: {run_dir.heat_map(order[0].algorithm)}")
    print_result(f"train the best: {shell_command('train', run_dir.best)}")


def _best_config(config: Config, best: Point, run_dir: TuneDir) -> str:
    """A config that trains a point on all training data, in a run directory of its own."""
    kernel = config.model.kernel
    if best.sigma is not None:
        kernel = kernel.model_copy(update={"sigma": best.sigma, "gamma": None})
    model = config.model.model_copy(
        update={"algorithm": best.algorithm, "C": best.C, "kernel": kernel}
    )
    run = config.run.model_copy(update={"dir": str(run_dir.path / f"best-{best.algorithm}")})
    return config.model_copy(update={"model": model, "run": run, "tune": None}).to_yaml()


def _log_plan(tuning: Tuning, features: int, missing: list[FoldTask]) -> None:
    grid, options = tuning.grid, tuning.options
    n, widths = len(tuning.index), len(tuning.sigmas)
    trainings = options.folds * widths * len(grid.C) * len(grid.algorithms)
    log(
        f"{n:,} patterns of {features} features, {options.folds} folds: {len(grid.C)} C x "
        f"{widths} sigma x {len(grid.algorithms)} algorithms, {trainings:,} trainings of at most "
        f"{options.max_iterations:,} iterations each (tune.max_iterations)"
    )
    left = sum(len(task.C or grid.C) for task in missing) * len(grid.algorithms)
    if left < trainings:
        log(f"resuming: {trainings - left:,} of {trainings:,} trainings are done")
