"""Choose C and sigma by cross-validation: python -m bigsvm.tune CONFIG.yaml."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from bigsvm import cli
from bigsvm.terminal.signals import GracefulExit

EXAMPLES = """writes into the run directory tune.csv (a row for each algorithm, sigma and C),
heat-map-ALGORITHM.png and best.yaml, ready for python -m bigsvm.train.

examples:
  python -m bigsvm.tune configs/heart.yaml
  python -m bigsvm.tune configs/heart.yaml --set tune.algorithms=[fw,mfw] --set tune.folds=5
  python -m bigsvm.tune configs/miniboone.yaml --set tune.subsample=5000
  python -m bigsvm.tune configs/magic.yaml --set "tune.C={from: 0.1, to: 1000, count: 9}"
  python -m bigsvm.train runs/heart-tune/best.yaml

Ctrl-C or kill: every finished fold is kept, and the same command again resumes, to the same table,
byte for byte. A wider grid in the same directory computes only what is new. Without tune.subsample,
as many rows are used as solver.memory_limit has room for.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `python -m bigsvm.tune`."""
    arguments = parse_arguments(argv)
    # Imported here, so that --help need not wait for pydantic, nor a mistake for numba.
    from bigsvm.config import TuneOptions
    from bigsvm.config.file import load_config

    config = load_config(arguments.config, arguments.set)
    config = config.model_copy(update={"tune": config.tune or TuneOptions()})
    path = arguments.run_dir or Path(f"runs/{arguments.config.stem}-tune")
    with GracefulExit().handle_signals() as graceful_exit:
        from bigsvm.tuning.run import tune

        finished = tune(config, path, arguments.fresh, graceful_exit)
    if finished or not graceful_exit():
        return 0
    print(f"saved in {path}; run the same command again to resume")
    return graceful_exit.exit_code


def parse_arguments(argv: Sequence[str] | None) -> Namespace:
    """Read the command line."""
    parser = cli.Arguments(
        "bigsvm.tune",
        "Choose C and sigma by stratified cross-validation over a grid, as the section "
        "`tune` of the config says.",
        EXAMPLES,
    )
    add = parser.add_argument
    add(
        "config",
        type=Path,
        metavar="CONFIG.yaml",
        help="as for train; its section `tune` (C, "
        "sigma, algorithms, folds, subsample, seed, max_iterations, metric) may be missing",
    )
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="override a value of the "
        "config, for instance tune.folds=5; repeatable")  # fmt: skip
    add("--run-dir", type=Path, help="the directory of the tuning (default: runs/CONFIG-tune)")
    add("--fresh", action="store_true", help="discard an earlier tuning in that directory")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(cli.run(main))
