"""Fit probabilities to decision values: python -m bigsvm.calibrate RUN|MODEL --on FILE."""

import shlex
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bigsvm import cli
from bigsvm.core.errors import UserError
from bigsvm.core.messages import Progress, no_progress
from bigsvm.readers import ReadOptions
from bigsvm.terminal.logs import print_result

if TYPE_CHECKING:
    from bigsvm.models.calibration import Method, Reliability
    from bigsvm.models.model import Model
    from bigsvm.prediction.inputs import Source

VALIDATION = "validation"
MODEL = "model.safetensors"


def calibrate(
    model_file: Path,
    on: str,
    method: "Method" = "sigmoid",
    out: Path | None = None,
    options: ReadOptions | None = None,
    progress: Progress = no_progress,
) -> "tuple[Model, Reliability]":
    """Fit probabilities to the decision values of labelled rows, and write them into the model.

    Parameters
    ----------
    model_file : Path
        A model or snapshot, or a run directory: its `model.safetensors`.
    on : str
        A store, a group in one, an address of either or a file of raw labelled rows, which the
        model was not trained on; "validation" for the validation rows of a run.
    method : {"sigmoid", "isotonic"}
        Platt's sigmoid suits few rows; isotonic regression needs a thousand or more.
    out : Path, optional
        Where to write the model (default: the file that was read); written atomically.
    options : ReadOptions, optional
        How to read a file.
    progress : callable
        Called with (what is being done, amount done, total or None).

    Returns
    -------
    Model
        The calibrated model.
    Reliability
        Of the probabilities of these rows, which they were fitted to.
    """
    import numpy as np

    from bigsvm.models.calibration import fit_calibration, reliability_of
    from bigsvm.models.model import load_model
    from bigsvm.models.scoring import Scorer, places_of_codes, score_chunks

    if model_file.is_dir():  # it is written, too
        model_file = model_file / MODEL
    model = load_model(model_file)
    with ExitStack() as stack:
        found = _open_rows(on, model_file.parent, model, options or ReadOptions(), stack)
        decisions, codes = [], []
        scaling = model.scaling if found.raw else None
        for chunk in score_chunks(Scorer([model]), found.chunks, found.name, scaling):
            if chunk.codes is None:
                raise UserError(f"{found.name}: has no labels, which a calibration needs")
            decisions.append(chunk.decisions[0])
            codes.append(chunk.codes)
            progress("scoring rows", chunk.stop, found.rows)
    if not decisions:
        raise UserError(f"{found.name}: has no rows")
    decision = np.concatenate(decisions)
    places = places_of_codes(np.concatenate(codes), model.classes)
    about = {"on": _short_name(found.name), "rows": len(decision)}
    try:
        fitted = fit_calibration(decision, places, model.classes, method, about=about)
    except UserError as mistake:
        raise UserError(f"{found.name}: {mistake}") from mistake
    calibrated = replace(model, calibration=fitted)
    calibrated.save(out or model_file)
    return calibrated, reliability_of(calibrated.probabilities_of(decision), places)


def _short_name(name: str) -> str:
    """The name of a file, or of a store and the group in it, without the folders they are in."""
    path = Path(name)
    is_group = path.parent.suffix.lower() in (".zarr", ".h5", ".hdf5")
    return f"{path.parent.name}/{path.name}" if is_group else path.name


def _open_rows(
    on: str, run: Path, model: "Model", options: ReadOptions, stack: ExitStack
) -> "Source":
    """The labelled rows to calibrate on; `run` is the folder of the model."""
    if on == VALIDATION:
        return _validation_rows(run, stack)
    from bigsvm.prediction.inputs import open_source

    return open_source(on, options, (None, None), model, stack, needs_labels=True)


def _validation_rows(run: Path, stack: ExitStack) -> "Source":
    from bigsvm.config.file import load_config
    from bigsvm.prediction.inputs import Source
    from bigsvm.preparation.data_sets import dataset_spec
    from bigsvm.stores.store import open_dataset
    from bigsvm.training.validation import open_validation

    path = run / "config.yaml"
    if not path.is_file():
        raise UserError(f"--on validation: {run} is no run directory; name a file or a store")
    config = load_config(path)
    assert config.data.train is not None  # it is resolved in the config of a run
    dataset = stack.enter_context(open_dataset(dataset_spec(config.data.train)))
    rows = stack.enter_context(open_validation(config, dataset))
    if rows is None:
        raise UserError(
            f"--on validation: the run {run} had no validation rows (data.validation or "
            "data.validation_fraction); name a file or a store"
        )
    return Source(rows.name, len(rows.codes), rows.chunks(), raw=False)


EXAMPLES = """The probabilities are written into the model (RUN/model.safetensors, or MODEL itself);
decision values and labels stay as they are. predict --probability, the ONNX export and evaluate use
them. Rows that the model was trained on make it overconfident: take others.

examples:
  python -m bigsvm.calibrate runs/mine --on validation
  python -m bigsvm.calibrate runs/mine --on held-out.csv --label-column class --method isotonic
  python -m bigsvm.calibrate mine.safetensors --on mine.zarr/test --out calibrated.safetensors
"""


def parse_arguments(argv: Sequence[str] | None) -> Namespace:
    """Read the command line."""
    parser = cli.Arguments(
        "bigsvm.calibrate", "Fit probabilities to the decision values of a model.", EXAMPLES
    )
    add = parser.add_argument
    add("model", metavar="RUN|MODEL", type=Path, help="a run directory, or a model or snapshot")
    add("--on", required=True, metavar="FILE|validation", help="labelled rows: a store (a path or "
        "an address; its part test, unless STORE/train is named), a raw file, or "
        "`validation`: data.validation or data.validation_fraction of the run")  # fmt: skip
    add("--method", choices=("sigmoid", "isotonic"), default="sigmoid", help="Platt's sigmoid "
        "(default), or isotonic regression, which needs a thousand rows or more")  # fmt: skip
    add("--out", type=Path, metavar="MODEL", help="write the model here, *.safetensors")
    add("--label-column", metavar="NAME", help="of a file of raw rows (default: the last)")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `python -m bigsvm.calibrate`."""
    arguments = parse_arguments(argv)
    out = arguments.out
    if out is not None and out.suffix != ".safetensors":
        raise UserError(f"--out {out}: a model is a file *.safetensors")
    if out is not None and not out.parent.is_dir():
        raise UserError(f"--out {out}: there is no folder {out.parent}; create it first")
    from bigsvm.terminal.compiling import notify_compilation
    from bigsvm.terminal.progress import show_progress

    options = ReadOptions(label_column=arguments.label_column)
    with show_progress() as progress, notify_compilation():
        model, found = calibrate(
            arguments.model, arguments.on, arguments.method, out, options, progress
        )
    assert model.calibration is not None
    print(
        f"{arguments.method} on {found.rows:,} rows of {model.calibration.about['on']}: Brier "
        f"score {found.brier_score:.4f}, log loss {found.log_loss:.4f} on these rows"
    )
    where = out or (arguments.model / MODEL if arguments.model.is_dir() else arguments.model)
    run = shlex.quote(str(arguments.model)) if arguments.model.is_dir() else "RUN_DIR"
    print_result(
        f"written to {where}; python -m bigsvm.predict --probability writes them, "
        f"python -m bigsvm.evaluate {run} draws how good they are on the test set"
    )
    return 0


if __name__ == "__main__":
    sys.exit(cli.run(main))
