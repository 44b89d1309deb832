"""Choose C and sigma by cross-validation: python -m bigsvm.tune CONFIG.yaml."""

import hashlib
import json
import sys
from argparse import Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigsvm import cli
from bigsvm.core.errors import ClusterLost
from bigsvm.terminal.signals import GracefulExit
from bigsvm.training.run_dir import RunDir

if TYPE_CHECKING:
    from bigsvm.config import Config
    from bigsvm.stores.store import Dataset
    from bigsvm.tuning.build import Tuning
    from bigsvm.tuning.cross_validation import FoldResult, FoldTask
    from bigsvm.tuning.results import ResultStore
    from bigsvm.tuning.table import Point

    Source = Generator[tuple[FoldTask, FoldResult], None, None]

SHOWN = 10
EXAMPLES = """writes into the run directory tune.csv (a row for each algorithm, sigma and C),
heat-map-ALGORITHM.png and best.yaml, ready for python -m bigsvm.train.

examples:
  python -m bigsvm.tune configs/heart.yaml
  python -m bigsvm.tune configs/heart.yaml --set tune.algorithms=[fw,mfw] --set tune.folds=5
  python -m bigsvm.tune configs/miniboone.yaml --set tune.subsample=5000
  python -m bigsvm.tune configs/magic.yaml --set "tune.C={from: 0.1, to: 1000, count: 9}"
  python -m bigsvm.train runs/heart-tune/best.yaml

Ctrl-C or kill: every fold that is finished is kept, and the same command again goes on from there,
to the same table, byte for byte.
"""


class TuneDir(RunDir):
    """The directory of a tuning; its names are none of those of a training."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.points = path / "points"
        self.folders = (self.points,)
        self.config = path / "tune.yaml"
        self.table = path / "tune.csv"
        self.best = path / "best.yaml"

    def heat_map(self, algorithm: str) -> Path:
        """Where the picture of an algorithm goes."""
        return self.path / f"heat-map-{algorithm}.png"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    arguments = parse_arguments(argv)
    from bigsvm.config import TuneOptions
    from bigsvm.config.file import load_config
    from bigsvm.terminal.compiling import notify_compilation

    config = load_config(arguments.config, arguments.set)
    config = config.model_copy(update={"tune": config.tune or TuneOptions()})
    run_dir = TuneDir(arguments.run_dir or Path(f"runs/{arguments.config.stem}-tune"))
    with GracefulExit().handle_signals() as graceful_exit, notify_compilation():
        try:
            whole = tune(config, run_dir, arguments.fresh, graceful_exit)
        except ClusterLost:
            if not graceful_exit():
                raise
            whole = False
    if whole or graceful_exit.signal is None:
        return 0
    print(f"saved in {run_dir.path}; the same command goes on from there")
    return 128 + graceful_exit.signal


def parse_arguments(argv: Sequence[str] | None) -> Namespace:
    """Read the command line."""
    parser = cli.Arguments(
        prog="python -m bigsvm.tune",
        description="Choose C and sigma by stratified cross-validation over a grid, as the section "
        "`tune` of the config says.",
        epilog=EXAMPLES,
        formatter_class=RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "config",
        type=Path,
        metavar="CONFIG.yaml",
        help="as for train; its section `tune` (C, "
        "sigma, algorithms, folds, subsample, seed, max_iterations, metric) may be missing",
    )
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="replace a value of the "
        "config, for instance tune.folds=5; repeatable")  # fmt: skip
    add("--run-dir", type=Path, help="where the tuning lives (default: runs/CONFIG-tune)")
    add("--fresh", action="store_true", help="forget a former tuning in that directory")
    return parser.parse_args(argv)


def tune(config: "Config", run_dir: TuneDir, fresh: bool, graceful_exit: GracefulExit) -> bool:
    """Tune as configured in the run directory; return whether it came to the end."""
    from bigsvm.cluster.start import connect
    from bigsvm.preparation.data_sets import absolute_spec, dataset_spec, resolve_data
    from bigsvm.stores.store import open_dataset
    from bigsvm.terminal.progress import show_progress
    from bigsvm.tuning.build import build_tuning
    from bigsvm.tuning.results import ResultStore

    with graceful_exit.exit_immediately(), show_progress() as progress:
        data = resolve_data(config.data, progress)
    assert data.train is not None
    with open_dataset(dataset_spec(data.train)) as dataset, run_dir.locked():
        tuning = build_tuning(config, dataset)
        for line in dataset.missing_chunk_warnings():
            _say(f"warning: {line}")
        shape = (len(tuning.grid.algorithms), len(tuning.grid.C))
        points = ResultStore(run_dir.points, tuning.identity, shape)
        found = {} if fresh else points.load(tuning.tasks)
        if fresh:
            points.clear()
        run_dir.write_text(run_dir.config, config.to_yaml())
        missing = [task for task in tuning.tasks if task not in found]
        _say_what(tuning, dataset.d, len(found))
        if missing:
            store = absolute_spec(data.train)
            with connect(config.cluster, _say, graceful_exit) as cluster:
                if cluster is None:
                    source = _in_threads(config, tuning, dataset, missing, graceful_exit)
                else:
                    source = _on_cluster(cluster, store, tuning, missing, graceful_exit)
                found |= _collected(source, tuning, points, len(found))
    if len(found) < len(tuning.tasks):
        return False
    _conclude(config, run_dir, tuning, found)
    return True


def _in_threads(
    config: "Config",
    tuning: "Tuning",
    dataset: "Dataset",
    tasks: "list[FoldTask]",
    interrupted: Callable[[], bool],
) -> "Source":
    import numpy as np

    from bigsvm.core.threads import available_threads
    from bigsvm.kernels import warm_up
    from bigsvm.solvers.whole_matrix import solve
    from bigsvm.tuning.build import matrices_that_fit
    from bigsvm.tuning.local import validate_locally

    # Compiled or loaded before memory is counted.
    warm_up(tuning.grid.kernels[0])
    solve(np.eye(2, dtype=np.float32), np.array([-1, 1]), [1.0], "mfw", tuning.grid.stop_rule)
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


def _on_cluster(
    cluster: Any,
    store: Any,
    tuning: "Tuning",
    tasks: "list[FoldTask]",
    interrupted: Callable[[], bool],
) -> "Source":
    from bigsvm.tuning.dask import validate_on_cluster

    key = hashlib.sha256(json.dumps(tuning.identity).encode()).hexdigest()
    return validate_on_cluster(
        cluster, key, store, tuning.index, tuning.split, tuning.grid, tasks, interrupted
    )


def _collected(
    source: "Source", tuning: "Tuning", points: "ResultStore", before: int
) -> "dict[FoldTask, FoldResult]":
    """Save each task as it comes, and show how far it has come."""
    from bigsvm.terminal.progress import show_progress
    from bigsvm.tuning.cross_validation import check_overflow

    found = {}
    with show_progress() as progress, closing(source):
        progress("folds", before, len(tuning.tasks))
        for task, result in source:
            check_overflow(result, task, tuning.grid)
            points.save(task, result)
            found[task] = result
            progress("folds", before + len(found), len(tuning.tasks))
    return found


def _conclude(
    config: "Config", run_dir: TuneDir, tuning: "Tuning", found: "dict[FoldTask, FoldResult]"
) -> None:
    """The table, the pictures, the best config, and what there is to say of them."""
    from bigsvm.tuning.heat_map import plot_heat_map
    from bigsvm.tuning.table import HEADING, edges_reached, line, points_of, ranked, write_table

    grid, options = tuning.grid, tuning.options
    table = points_of(found, tuning.split, grid, tuning.sigmas)
    write_table(run_dir.table, table)
    order = ranked(table, options.metric)
    for algorithm in grid.algorithms:
        of_algorithm = [point for point in order if point.algorithm == algorithm]
        plot_heat_map(run_dir.heat_map(algorithm), of_algorithm, of_algorithm[0], options.metric)
        if len(grid.algorithms) > 1:
            path = run_dir.path / f"best-{algorithm}.yaml"
            run_dir.write_text(path, _as_config(config, of_algorithm[0], run_dir))
        print(f"{algorithm}, the best {min(SHOWN, len(of_algorithm))} of {len(of_algorithm)}:")
        print(HEADING, *map(line, of_algorithm[:SHOWN]), sep="\n")
    run_dir.write_text(run_dir.best, _as_config(config, order[0], run_dir))
    if unfinished := sum(point.converged < options.folds for point in table):
        print(
            f"{unfinished} of {len(table)} points reached tune.max_iterations = "
            f"{options.max_iterations:,} in some fold"
        )
    for key in edges_reached(order[0], grid.C, tuning.sigmas):
        print(f"the best {key} is at the edge of its grid: widen tune.{key}")
    print(f"table: {run_dir.table}; picture: {run_dir.heat_map(order[0].algorithm)}")
    print(f"train the best: python -m bigsvm.train {run_dir.best}")


def _as_config(config: "Config", best: "Point", run_dir: TuneDir) -> str:
    """The config that trains a point on all of the training data, in a run directory of its own."""
    kernel = config.model.kernel
    if best.sigma is not None:
        kernel = kernel.model_copy(update={"sigma": best.sigma, "gamma": None})
    model = config.model.model_copy(
        update={"algorithm": best.algorithm, "C": best.C, "kernel": kernel}
    )
    run = config.run.model_copy(update={"dir": str(run_dir.path / f"best-{best.algorithm}")})
    return config.model_copy(update={"model": model, "run": run, "tune": None}).to_yaml()


def _say_what(tuning: "Tuning", features: int, there: int) -> None:
    grid, options = tuning.grid, tuning.options
    n, widths = len(tuning.index), len(tuning.sigmas)
    trainings = options.folds * widths * len(grid.C) * len(grid.algorithms)
    _say(
        f"{n:,} patterns of {features} features, {options.folds} folds: {len(grid.C)} C x "
        f"{widths} sigma x {len(grid.algorithms)} algorithms, {trainings:,} trainings of at most "
        f"{options.max_iterations:,} iterations each (tune.max_iterations)"
    )
    if there:
        _say(f"going on: {there} of {len(tuning.tasks)} folds are there already")


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(cli.run(main))
