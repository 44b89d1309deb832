"""Score every snapshot of a run, or a model: python -m bigsvm.evaluate RUN_DIR|MODEL [...]."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bigsvm import cli
from bigsvm.core.errors import UserError
from bigsvm.core.urls import is_url
from bigsvm.training.run_dir import run_labels

EXAMPLES = """writes RUN_DIR/evaluation.csv and RUN_DIR/evolution.png, with a line and a point per
snapshot; for the latest model RUN_DIR/confusion.csv and, for two classes, the ROC and
precision-recall curves RUN_DIR/curves.csv and RUN_DIR/curves.png; where it was calibrated, how good
its probabilities are, RUN_DIR/calibration.json and RUN_DIR/calibration.png. The scores of a MODEL
(with --test) are only printed.

examples:
  python -m bigsvm.evaluate runs/miniboone
  python -m bigsvm.evaluate runs/miniboone --follow            beside a training
  python -m bigsvm.evaluate runs/miniboone --test other.zarr
  python -m bigsvm.evaluate runs/mine --test new.csv --label-column class
  python -m bigsvm.evaluate mine.safetensors --test new.csv --label-column class
  python -m bigsvm.evaluate runs/fw runs/mfw --picture both.png --labels "SVM" "sparse SVM"
"""


def parse_arguments(argv: Sequence[str] | None) -> Namespace:
    """Read the command line."""
    parser = cli.Arguments(
        "bigsvm.evaluate",
        "Score every snapshot of a run on a test set, in one pass over it.",
        EXAMPLES,
    )
    add = parser.add_argument
    add("runs", metavar="RUN_DIR|MODEL", nargs="+", type=Path, help="a run directory, as python -m "
        "bigsvm.train writes it, or a model or snapshot, *.safetensors")  # fmt: skip
    add("--test", metavar="STORE|FILE", help="test set: a store scaled like the training data (a "
        "path or an address), or a file of raw labelled rows (or a pattern), prepared as "
        "the training data was (default: data.test of the run's config)")  # fmt: skip
    add("--label-column", metavar="NAME", help="of a file of raw rows (default: the last)")
    add("--follow", action="store_true", help="evaluate snapshots as they appear, until the run "
        "ends")  # fmt: skip
    add("--picture", metavar="FILE.png", type=Path, help="also plot all runs together")
    add("--labels", metavar="NAME", nargs="+", help="of the runs, in plots and on screen")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `python -m bigsvm.evaluate`."""
    arguments = parse_arguments(argv)
    labels = run_labels(arguments.runs, arguments.labels)
    picture = arguments.picture
    if picture:
        cli.check_output("--picture", picture, [".png"], "plots are PNG files")
    # Imported here, so that --help need not wait for numba.
    from bigsvm.terminal.compiling import notify_compilation
    from bigsvm.training.evaluation import RunEvaluation, evaluate_all, evaluate_model, follow

    if any(path.is_file() for path in arguments.runs):
        _check_models(arguments)
        with ExitStack() as stack, notify_compilation():
            for path in arguments.runs:
                evaluate_model(path, str(_test_set(arguments, path, stack)))
        return 0
    with ExitStack() as stack, notify_compilation():
        runs = {
            label: RunEvaluation(folder, _test_set(arguments, folder, stack))
            for label, folder in zip(labels, arguments.runs, strict=True)
        }
        (follow if arguments.follow else evaluate_all)(runs, picture)
    written = [path for run in runs.values() for path in run.written]
    print(f"written: {', '.join(map(str, [*written, *([picture] if picture else [])]))}")
    return 0


def _check_models(arguments: Namespace) -> None:
    """Raise a UserError for what cannot be done with models alone."""
    for path in arguments.runs:
        if not path.is_file():
            raise UserError(f"{path}: is no model, but others are; name models, or run directories")
    if arguments.test is None:
        raise UserError(f"{arguments.runs[0]}: a model names no test set; --test STORE|FILE does")
    for option in ("follow", "picture", "labels"):
        if getattr(arguments, option):
            raise UserError(f"--{option}: is for run directories, not for a model")


def _test_set(arguments: Namespace, run: Path, stack: ExitStack) -> str | None:
    """The test set as a store; that of a file of raw rows goes away with the stack."""
    from bigsvm.prediction.inputs import is_store
    from bigsvm.prediction.like import prepared_test_set
    from bigsvm.readers import ReadOptions
    from bigsvm.tables.files import is_parts

    test = arguments.test
    local = test is not None and not is_url(test)
    if not local or not (is_parts(test) or (Path(test).is_file() and not is_store(test))):
        if arguments.label_column is not None:
            raise UserError("--label-column: is for a file of raw rows (--test FILE)")
        return test
    if arguments.follow:
        raise UserError(
            f"--follow: needs a store; make one of {test} with python -m bigsvm.prepare --like"
        )
    if not run.exists():
        raise UserError(f"{run}: there is no such run directory")
    options = ReadOptions(label_column=arguments.label_column)
    return str(stack.enter_context(prepared_test_set(test, run, options)))


if __name__ == "__main__":
    sys.exit(cli.run(main))
