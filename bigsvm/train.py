"""Train a model: python -m bigsvm.train CONFIG.yaml. Run again, the same command resumes."""

import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from bigsvm import cli
from bigsvm.terminal.logs import AS_MODULE, as_called
from bigsvm.terminal.signals import GracefulExit
from bigsvm.training.next_step import TrainCommand

EXAMPLES = """examples:
  python -m bigsvm.train configs/quickstart.yaml
  python -m bigsvm.train configs/miniboone.yaml --set model.C=10 --run-dir runs/miniboone-C10
  python -m bigsvm.train configs/miniboone.yaml --set solver.max_iterations=80000    (resumes)
  python -m bigsvm.train configs/miniboone.yaml --fresh                              (starts over)

On Ctrl-C or SIGTERM the run is saved before the command exits. The same command again resumes it,
and arrives at the same model, bit for bit. The models so far can be scored at any time with
python -m bigsvm.evaluate RUN_DIR
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `python -m bigsvm.train`."""
    arguments = parse_arguments(argv)
    began = time.monotonic()
    # Imported here, so that --help need not wait for pydantic, nor a mistake for numba.
    from bigsvm.config.file import load_config

    config = load_config(arguments.config, arguments.set)
    path = arguments.run_dir or Path(config.run.dir or f"runs/{arguments.config.stem}")
    command = TrainCommand(as_called(AS_MODULE), arguments.config, arguments.set, arguments.run_dir)
    with GracefulExit().handle_signals() as graceful_exit:
        from bigsvm.training.compile_ahead import compile_ahead

        with compile_ahead(config.solver) as wait_for_steps:
            from bigsvm.training.run import train

            status = train(
                config, command, path, arguments.fresh, began, graceful_exit, wait_for_steps
            )
    return graceful_exit.exit_code if status == "interrupted" else 0


def parse_arguments(argv: Sequence[str] | None) -> Namespace:
    """Read the command line."""
    parser = cli.Arguments(
        "bigsvm.train", "Train a sparse kernel SVM; run again, the same command resumes.", EXAMPLES
    )
    parser.add_argument("config", type=Path, metavar="CONFIG.yaml")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a value of the config, for instance solver.max_iterations=40000; repeatable",
    )
    parser.add_argument(
        "--run-dir", type=Path, help="the run directory (default: run.dir, or runs/CONFIG)"
    )
    parser.add_argument(
        "--fresh", action="store_true", help="discard an earlier run in that directory"
    )
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(cli.run(main))
