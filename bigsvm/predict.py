"""Apply a model to a store or a file: python -m bigsvm.predict MODEL INPUT OUT."""

import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from bigsvm import cli
from bigsvm.core.errors import UserError
from bigsvm.core.labels import Classes, classes_array
from bigsvm.core.messages import Progress, no_progress, shell_command
from bigsvm.core.urls import is_url, path_or_url
from bigsvm.prediction.outputs import (
    STANDARD_OUTPUT,
    Predicted,
    check_output,
    columns_of,
    open_predictions,
)
from bigsvm.readers import FORMATS, ReadOptions
from bigsvm.tables.encoding import UNSEEN
from bigsvm.terminal.logs import log
from bigsvm.terminal.progress import show_progress
from bigsvm.terminal.signals import exit_on_sigterm

Units = Literal["raw", "margin"]

if TYPE_CHECKING:
    from bigsvm.config import ClusterConfig
    from bigsvm.models.evaluation import Majority
    from bigsvm.models.model import Model
    from bigsvm.models.scores import Scores
    from bigsvm.models.scoring import ScoredChunk
    from bigsvm.prediction.inputs import Source


@dataclass(frozen=True)
class Summary:
    """The result of `predict`."""

    name: str
    out: Path
    classes: Classes
    counts: tuple[int, ...]  # rows predicted as each class
    scores: "Scores | None" = None  # if the input has labels, and then
    majority: "Majority | None" = None  # the largest class by them

    @property
    def accuracy(self) -> float | None:
        """The share of rows predicted right, if the input has labels."""
        return None if self.scores is None else self.scores.accuracy

    @property
    def warning(self) -> str | None:
        """A warning if the predictions are no better than always the same one."""
        if self.scores is None or self.majority is None:
            return None
        return self.majority.warning(self.scores.accuracy, self.scores.balanced_accuracy)

    def __str__(self) -> str:
        each = ", ".join(
            f"{label} {n:,}" for label, n in zip(self.classes, self.counts, strict=True)
        )
        accuracy = ""
        if self.scores is not None and self.majority is not None:
            accuracy = f"; accuracy {100 * self.scores.accuracy:.2f} %"
            if self.majority.is_large:
                accuracy += f", balanced {100 * self.scores.balanced_accuracy:.2f} %"
        out = "standard output" if str(self.out) == STANDARD_OUTPUT else self.out
        return f"{self.name}: {sum(self.counts):,} rows; {each}{accuracy}; written to {out}"


def predict(
    model_file: Path,
    source: Path | str,
    out: Path,
    options: ReadOptions | None = None,
    *,
    arrays: tuple[str | None, str | None] = (None, None),
    overwrite: bool = False,
    cluster: "ClusterConfig | None" = None,
    keep: Sequence[str] = (),
    threshold: float | None = None,
    probability: bool = False,
    units: "Units" = "raw",
    unseen: "Literal['error', 'ignore'] | None" = None,
    progress: Progress = no_progress,
) -> Summary:
    """Stream the rows of `source` through a model into `out`, in bounded memory.

    Parameters
    ----------
    model_file : Path
        A model or snapshot.
    source : Path or str
        A store, a group in one, the address of either (s3://...), or raw rows: a file, a pattern,
        or a folder of parts.
    out : Path
        `*.csv` or `*.parquet` with the columns row (from 0), decision, label; `*.zarr` with the
        arrays decision and label; or `*.npy` with the decision values. Written atomically. With
        more than two classes there is a column decision_LABEL for each, or an array
        (rows, classes). `-` is standard output, as CSV.
    options : ReadOptions, optional
        How to read a file; `with_labels=False` if a file or store has no labels.
    arrays : (name of X, name of y)
        In a store that was not made by `prepare`.
    overwrite : bool
        Replace an existing output.
    cluster : ClusterConfig, optional
        Compute on this cluster; this process still reads and writes. The output is the same.
    keep : sequence of str
        Columns of the input file to copy to a table of predictions, after the row number.
    threshold : float, optional
        For two classes: rows with at least this decision value, in the units of the output, are of
        the second class; replaces the threshold of the model. With `probability`, rows with at
        least this probability of the second class.
    probability : bool
        Add the probability of each class, of a model that has been calibrated: columns
        probability_LABEL, or an array probability (rows, classes) in Zarr.
    units : {"raw", "margin"}
        Of the decision values: those of the model, as `Model.decision_function` returns them, or
        divided by its margin, as those of `BigSVC` are: support vectors are at about 1 or -1.
    unseen : {"error", "ignore"}, optional
        Of a category that no training row had; replaces what the data was prepared with.
    progress : callable
        Called with (what is being done, amount done, total or None).

    Returns
    -------
    Summary
    """
    from bigsvm.models.evaluation import majority_in
    from bigsvm.models.model import load_model
    from bigsvm.models.scores import scores_from_confusion
    from bigsvm.models.scoring import places_of_codes
    from bigsvm.prediction.inputs import open_source
    from bigsvm.prediction.kept_columns import check_kept, open_kept

    check_output(out, overwrite)
    _check_is_no_input(out, [model_file, source])
    options = options or ReadOptions()
    model = load_model(model_file)
    unit = _unit(model, model_file) if units == "margin" else 1.0
    if probability:
        _check_probability(model, model_file, out)
    if threshold is not None:
        _check_threshold(model, threshold, probability)
        if not probability:
            model = replace(model, threshold=threshold * unit)
    check_kept(keep, out, columns_of(model.classes, probability=probability))
    if unseen is not None:
        model = _with_unseen(model, unseen)
    n_classes = len(model.classes)
    counts = np.zeros(n_classes, np.int64)
    confusion = np.zeros((n_classes, n_classes), np.int64)
    with ExitStack() as stack:
        found = open_source(source, options, arrays, model, stack)
        kept = open_kept(keep, Path(source), options) if keep else None
        scored = _score(model, found, cluster, stack)
        names = columns_of(model.classes, keep, probability)
        writer = stack.enter_context(open_predictions(out, model.classes, names))
        for chunk in scored:
            decision = chunk.decisions[0]
            others = None if kept is None else kept.next(len(decision))
            likely = model.probabilities_of(decision) if probability else None
            places = model.places_of(decision)
            if likely is not None and threshold is not None:
                places = (likely[:, 1] >= threshold).astype(int)
            rows = Predicted(decision / unit, classes_array(model.classes)[places], likely)
            writer.append(chunk.start, rows, others)
            counts += np.bincount(places, minlength=len(counts))
            if chunk.codes is not None:
                pairs = places_of_codes(chunk.codes, model.classes).astype(np.int64) * n_classes
                found_pairs = np.bincount(pairs + places, minlength=n_classes**2)
                confusion += found_pairs.reshape(confusion.shape)
            progress("predicting rows", chunk.stop, found.rows)
        if kept is not None:
            kept.check_end()
        if not counts.any():
            raise UserError(f"{found.name}: has no rows")
    summary = Summary(found.name, out, model.classes, tuple(map(int, counts)))
    if not confusion.any():
        return summary
    scores, majority = scores_from_confusion(confusion), majority_in(confusion, model.classes)
    return replace(summary, scores=scores, majority=majority)


def _with_unseen(model: "Model", unseen: Literal["error", "ignore"]) -> "Model":
    if model.encoding is None:
        raise UserError(f"--unseen {unseen}: no column of this model has categories; leave it out")
    encoding = replace(model.encoding, unseen=unseen)
    return replace(model, about={**model.about, "encoding": encoding.to_json()})


def _check_is_no_input(out: Path, inputs: Sequence[Path | str]) -> None:
    for path in (Path(name) for name in inputs if not is_url(str(name))):
        if out.exists() and path.exists() and out.samefile(path):
            raise UserError(f"{out}: is also an input; choose another name for the output")
        if out.resolve() in path.resolve().parents:
            raise UserError(f"{out}: contains the input {path}; choose another name for the output")


def _check_threshold(model: "Model", threshold: float, probability: bool) -> None:
    if len(model.classes) > 2:
        raise UserError(
            f"--threshold: is for two classes, and the model has {len(model.classes)}, of which "
            "the largest decision value wins"
        )
    if not np.isfinite(threshold):
        raise UserError(f"--threshold {threshold}: must be a finite number")
    if probability and not 0 <= threshold <= 1:
        raise UserError(
            f"--threshold {threshold:g}: with --probability it is one, from 0 to 1; without, a "
            "decision value"
        )


def _unit(model: "Model", model_file: Path) -> float:
    """The margin of the model."""
    if model.margin is None:
        raise UserError(
            f"--units margin: {model_file} does not have its margin; an older version of bigsvm "
            "wrote it, so train again, or write --units raw"
        )
    return model.margin


def _check_probability(model: "Model", model_file: Path, out: Path) -> None:
    if model.calibration is None:
        raise UserError(
            f"--probability: {model_file} has not been calibrated; fit its probabilities to "
            f"labelled rows with {shell_command('calibrate', model_file)} --on FILE"
        )
    if out.suffix.lower() == ".npy":
        raise UserError(
            f"--probability: {out} holds decision values alone; choose .csv, .parquet or .zarr"
        )


def _score(
    model: "Model", found: "Source", cluster: "ClusterConfig | None", stack: ExitStack
) -> "Iterator[ScoredChunk]":
    from bigsvm.models.scoring import Scorer, score_chunks

    work = Scorer([model]), found.chunks, found.name, model.scaling if found.raw else None
    if cluster is None:
        return score_chunks(*work)
    from bigsvm.cluster.start import connect
    from bigsvm.prediction.cluster import score_on_cluster

    workers = stack.enter_context(connect(cluster, log, lambda: False))
    return score_on_cluster(workers, *work)


EXAMPLES = """examples:
  python -m bigsvm.predict runs/mb/model.safetensors mb.zarr/test predictions.csv
  python -m bigsvm.predict runs/mb/model.safetensors new.csv.gz predictions.parquet --no-labels
  python -m bigsvm.predict runs/mb/model.safetensors new.parquet predictions.zarr --no-labels
  python -m bigsvm.predict runs/mb/snapshots/model-00005000.safetensors mine.h5 f.npy --x features
  python -m bigsvm.predict runs/mb/model.safetensors new.csv - --keep id --no-labels | head
  python -m bigsvm.predict runs/mb/model.safetensors new.csv p.csv --probability --no-labels
  python -m bigsvm.predict runs/mb/model.safetensors new.csv p.csv --units margin --no-labels
  python -m bigsvm.predict runs/mb/model.safetensors big.zarr f.zarr --cluster tcp://head:8786

Raw rows are scaled like the model's training data; a prepared store records that it is scaled
already. For a store with the parts train and test it is test, unless STORE/train is named.
"""


def parse_arguments(argv: Sequence[str] | None) -> Namespace:
    """Read the command line."""
    parser = cli.Arguments(
        "bigsvm.predict", "Apply a model to a store or a file, in bounded memory.", EXAMPLES
    )
    add = parser.add_argument
    add("model", metavar="MODEL", type=Path, help="a model or snapshot, *.safetensors")
    add("source", metavar="INPUT", type=path_or_url, help="a store (Zarr, HDF5; Zarr also "
        "at an address such as s3://bucket/store.zarr), or a file: LIBSVM, CSV, "
        "TSV, Parquet, Arrow, npy, npz, MiniBooNE text; text also gz, bz2, xz; a pattern in "
        "quotes, or a folder of CSV, Parquet or Arrow parts")  # fmt: skip
    add("out", metavar="OUT", type=Path, help="*.csv or *.parquet (row, decision, label), *.zarr "
        "(decision, label) or *.npy (decision values); - is standard output, as CSV")  # fmt: skip
    add("--keep", action="append", default=[], metavar="COLUMN", help="a column of the file, such "
        "as an id, to copy to the predictions; repeatable")  # fmt: skip
    add("--threshold", type=float, metavar="T", help="rows with at least this decision value, or "
        "with --probability this probability, are of the second class (default: the model's "
        "threshold, a decision value of 0 unless fitted)")  # fmt: skip
    add("--units", choices=("raw", "margin"), default="raw", help="of decision values and "
        "--threshold: raw, as the model has them (default), or margin, as BigSVC has them: "
        "support vectors are at about 1 or -1")  # fmt: skip
    add("--probability", action="store_true", help="add the probability of each class, of a model "
        "that python -m bigsvm.calibrate has been run on")  # fmt: skip
    add("--unseen", choices=UNSEEN, help="a category that no training row has: replaces the choice "
        "of prepare")  # fmt: skip
    add("--no-labels", action="store_true", help="the input has none, or ignore them: in a "
        "file every column is a feature")  # fmt: skip
    add("--overwrite", action="store_true", help="replace an existing OUT")
    add("--cluster", metavar="WHERE", help="compute on the workers of a Dask cluster: `local` "
        "starts workers here; or a scheduler's address, or its scheduler file")  # fmt: skip
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="a value for the cluster "
        "as in a config, for instance cluster.workers=4; repeatable")  # fmt: skip
    reading = parser.add_argument_group("reading a file")
    add = reading.add_argument
    add("--format", choices=FORMATS, help="default: detected")
    add("--label-column", metavar="NAME", help="name, or position from 0 (default: the last)")
    add("--weight-column", metavar="NAME", help="likewise; it is ignored")
    add("--header", choices=("auto", "yes", "no"), help="whether a CSV file has one")
    add("--delimiter", metavar="C", help="of CSV")
    own = parser.add_argument_group("reading a store not made by prepare")
    add = own.add_argument
    add("--x", metavar="NAME", help="array of the rows (default X)")
    add("--y", metavar="NAME", help="array of the labels (default y, if it exists)")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `python -m bigsvm.predict`."""
    arguments = parse_arguments(argv)
    from bigsvm.config.prepare_options import options_from_arguments
    from bigsvm.terminal.compiling import notify_compilation

    _check_options(arguments)
    options = replace(
        options_from_arguments(vars(arguments)).to_read(), with_labels=not arguments.no_labels
    )
    cluster = None
    if arguments.cluster is not None:
        from bigsvm.config.file import cluster_config

        cluster = cluster_config(arguments.cluster, arguments.set)
    elif arguments.set:
        raise UserError(f"--set {arguments.set[0]}: needs --cluster")
    with exit_on_sigterm(), show_progress() as progress, notify_compilation():
        summary = predict(
            arguments.model,
            arguments.source,
            arguments.out,
            options,
            arrays=(arguments.x, arguments.y),
            overwrite=arguments.overwrite,
            cluster=cluster,
            keep=arguments.keep,
            threshold=arguments.threshold,
            probability=arguments.probability,
            units=arguments.units,
            unseen=arguments.unseen,
            progress=progress,
        )
    if not arguments.quiet:
        if summary.warning is not None:
            log(f"warning: {summary.warning}")
        print(summary, file=sys.stderr if str(arguments.out) == STANDARD_OUTPUT else sys.stdout)
    return 0


def _check_options(arguments: Namespace) -> None:
    from bigsvm.prediction.inputs import is_store

    store = is_store(arguments.source)
    of_files = ("format", "label_column", "weight_column", "header", "delimiter")
    unused = of_files if store else ("x", "y")
    for name in unused:
        if getattr(arguments, name) is not None:
            kind, option = "a store" if store else "a file", name.replace("_", "-")
            raise UserError(f"--{option}: does not apply to {kind}, and {arguments.source} is one")
    if store and arguments.keep:
        raise UserError(f"--keep: does not apply to a store, and {arguments.source} is one")
    if arguments.no_labels and (arguments.y or arguments.label_column):
        raise UserError("--no-labels contradicts the option that names the labels")


if __name__ == "__main__":
    sys.exit(cli.run(main))
