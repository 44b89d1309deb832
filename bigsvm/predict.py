"""A store or a file through a model: python -m bigsvm.predict MODEL INPUT OUT."""

import sys
from argparse import Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm import cli
from bigsvm.addresses import is_address, path_or_address
from bigsvm.errors import UserError
from bigsvm.labels import Classes, to_signs
from bigsvm.predictions import check_output, open_predictions
from bigsvm.prepare import cleaning_up_when_terminated, options_from
from bigsvm.progress import Progress, shown_progress, silent
from bigsvm.readers import FORMATS, Reader, ReadOptions

if TYPE_CHECKING:
    from bigsvm.model import Model
    from bigsvm.scoring import Piece


@dataclass(frozen=True)
class Source:
    """Rows to predict."""

    name: str
    rows: int | None  # where known beforehand
    pieces: "Iterator[Piece]"
    raw: bool  # not scaled yet


@dataclass(frozen=True)
class Summary:
    """What `predict` has found."""

    name: str
    out: Path
    classes: Classes
    counts: tuple[int, int]  # rows predicted as the first and as the second class
    accuracy: float | None  # where the input has labels

    def __str__(self) -> str:
        each = ", ".join(
            f"{label} {n:,}" for label, n in zip(self.classes, self.counts, strict=True)
        )
        accuracy = "" if self.accuracy is None else f"; accuracy {100 * self.accuracy:.2f} %"
        return f"{self.name}: {sum(self.counts):,} rows; {each}{accuracy}; written to {self.out}"


def predict(
    model_file: Path,
    source: Path | str,
    out: Path,
    options: ReadOptions | None = None,
    *,
    arrays: tuple[str | None, str | None] = (None, None),
    overwrite: bool = False,
    progress: Progress = silent,
) -> Summary:
    """Stream the rows of `source` through a model into `out`, in bounded memory.

    Parameters
    ----------
    model_file : Path
        A model or snapshot.
    source : Path or str
        A store, a group in one, the address of either (s3://...), or a file of raw rows.
    out : Path
        `*.csv` or `*.parquet` with the columns row (from 0), decision, label; `*.zarr` with the
        arrays decision and label; or `*.npy` with the decision values. It appears whole or not at
        all.
    options : ReadOptions, optional
        How to read a file; `with_labels=False` where there are no labels, in a store too.
    arrays : (name of X, name of y)
        In a store of the user's own.
    """
    from bigsvm.model import load_model
    from bigsvm.scoring import Scorer, decided

    check_output(out, overwrite)
    inputs = [Path(path) for path in (model_file, source) if not is_address(str(path))]
    if any(out.exists() and path.exists() and out.samefile(path) for path in inputs):
        raise UserError(f"{out}: is an input, too; choose another name for the output")
    for path in inputs:
        if out.resolve() in path.resolve().parents:
            raise UserError(f"{out}: holds the input {path}; choose another name for the output")
    model = load_model(model_file)
    options = options or ReadOptions()
    counts = np.zeros(2, np.int64)
    right = 0
    labelled = False
    with ExitStack() as stack:
        if is_store(source):
            found = _open_store(source, arrays, model, options.with_labels, stack)
        else:
            found = _open_file(Path(source), options, model)
        writer = stack.enter_context(open_predictions(out))
        scaling = model.scaling if found.raw else None
        for piece in decided(Scorer([model]), found.pieces, found.name, scaling):
            decision = piece.decisions[0]
            writer.append(piece.start, decision, model.labels_of(decision))
            counts += np.bincount(decision >= 0, minlength=2)
            if piece.signs is not None:
                labelled = True
                right += int(np.count_nonzero((decision >= 0) == (piece.signs > 0)))
            progress("predicting rows", piece.stop, found.rows)
        if not counts.any():
            raise UserError(f"{found.name}: no rows in it")
    accuracy = right / int(counts.sum()) if labelled else None
    return Summary(found.name, out, model.classes, (int(counts[0]), int(counts[1])), accuracy)


def is_store(source: Path | str) -> bool:
    """Whether it is a Zarr or HDF5 store, or a group inside one, rather than a file of rows."""
    import h5py

    if is_address(str(source)):
        return True
    path = Path(source)
    if path.is_file():
        return bool(h5py.is_hdf5(path))
    if path.is_dir() or any(parent.is_file() for parent in path.parents):
        return True
    if path.suffix in (".zarr", ".h5", ".hdf5") or any(p.suffix == ".zarr" for p in path.parents):
        return True  # not there: the store has the better words for it
    raise UserError(f"{path}: there is no such file or store")


def _open_store(
    path: Path | str,
    arrays: tuple[str | None, str | None],
    model: "Model",
    with_labels: bool,
    stack: ExitStack,
) -> Source:
    from bigsvm.scoring import check_features, effective, other_scaling, pieces_of
    from bigsvm.store import open_dataset
    from bigsvm.store_place import damage_named, open_place

    with damage_named(str(path)):
        place = open_place(path)
        group: Any = place.group
        part = "test" if "test" in group else "train"
        if (arrays[0] or "X") not in group and part in group:
            group = group[part]
        with_labels = with_labels and (arrays[1] is not None or "y" in group)
        place.close()
    spec = {"path": path, "x": arrays[0], "y": arrays[1]}
    dataset = stack.enter_context(
        open_dataset(
            spec, part, classes=model.classes if with_labels else None, with_labels=with_labels
        )
    )
    check_features(model, dataset.d, dataset.path)
    ours, theirs = effective(model.scaling), effective(dataset.scaling)
    if theirs is not None and theirs != ours:
        raise other_scaling(model, dataset)
    pieces = pieces_of(dataset, with_labels=with_labels)
    return Source(dataset.path, dataset.n, pieces, raw=theirs is None)


def _open_file(path: Path, options: ReadOptions, model: "Model") -> Source:
    from bigsvm.readers import open_reader
    from bigsvm.readers.recognise import recognise
    from bigsvm.scoring import check_features

    if recognise(path, options) == "libsvm":
        # Rows may leave out the last features.
        options = replace(options, features=model.n_features)
    reader = open_reader(path, options)
    advice = ""
    if reader.d == model.n_features - 1 and options.with_labels:
        advice = " (one column was taken for the labels; --no-labels if there are none)"
    if reader.d == model.n_features + 1 and not options.with_labels:
        advice = " (is one column the labels? then leave out --no-labels)"
    check_features(model, reader.d, str(path), advice)
    rows: int | None = getattr(reader, "n", None)  # text does not say it beforehand
    return Source(str(path), rows, _pieces_of_file(path, reader, options, model), raw=True)


def _pieces_of_file(
    path: Path, reader: Reader, options: ReadOptions, model: "Model"
) -> "Iterator[Piece]":
    from bigsvm.scoring import Piece

    start = 0
    for batch in reader.batches():
        signs = to_signs(batch.y, model.classes, str(path)) if options.with_labels else None
        yield Piece(start, batch.x, signs)
        start += len(batch.x)


EXAMPLES = """examples:
  python -m bigsvm.predict runs/mb/model.safetensors mb.zarr/test predictions.csv
  python -m bigsvm.predict runs/mb/model.safetensors new.csv.gz predictions.parquet --no-labels
  python -m bigsvm.predict runs/mb/model.safetensors new.parquet predictions.zarr --no-labels
  python -m bigsvm.predict runs/mb/snapshots/model-00005000.safetensors mine.h5 f.npy --x features

Raw rows are scaled as the model's training data was; a prepared store says itself that it is
scaled already. Of a store with the parts train and test, test is taken unless STORE/train is named.
"""


def parse_arguments(argv: Sequence[str] | None) -> Namespace:
    parser = cli.Arguments(
        prog="python -m bigsvm.predict",
        description="Stream a store or a file through a model, in bounded memory.",
        epilog=EXAMPLES,
        formatter_class=RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("model", metavar="MODEL", type=Path, help="a model or snapshot, *.safetensors")
    add("source", metavar="INPUT", type=path_or_address, help="a store (Zarr, HDF5; Zarr also "
        "at an address such as s3://bucket/store.zarr), or a file: LIBSVM, CSV, "
        "TSV, Parquet, npy, npz, MiniBooNE text; text also gz, bz2, xz")  # fmt: skip
    add("out", metavar="OUT", type=Path, help="*.csv or *.parquet (row, decision, label), *.zarr "
        "(decision, label) or *.npy (decision values)")  # fmt: skip
    add("--no-labels", action="store_true", help="there are none, or they do not matter: in a "
        "file every column is a feature")  # fmt: skip
    add("--overwrite", action="store_true", help="replace an existing OUT")
    add("--quiet", action="store_true", help="show neither progress nor summary")
    reading = parser.add_argument_group("reading a file")
    add = reading.add_argument
    add("--format", choices=FORMATS, help="default: found out")
    add("--label-column", metavar="NAME", help="name, or position from 0 (default: the last)")
    add("--header", choices=("auto", "yes", "no"), help="whether a CSV file has one")
    add("--delimiter", metavar="C", help="of CSV")
    own = parser.add_argument_group("reading a store of your own")
    add = own.add_argument
    add("--x", metavar="NAME", help="array of the rows (default X)")
    add("--y", metavar="NAME", help="array of the labels (default y, where there is one)")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `python -m bigsvm.predict`."""
    arguments = parse_arguments(argv)
    _refuse_options_without_use(arguments)
    options = replace(options_from(arguments).to_read(), with_labels=not arguments.no_labels)
    asked = (arguments.model, arguments.source, arguments.out, options)
    kept = {"arrays": (arguments.x, arguments.y), "overwrite": arguments.overwrite}
    with cleaning_up_when_terminated():
        if arguments.quiet:
            predict(*asked, **kept)
            return 0
        with shown_progress() as progress:
            summary = predict(*asked, **kept, progress=progress)
    print(summary)
    return 0


def _refuse_options_without_use(arguments: Namespace) -> None:
    store = is_store(arguments.source)
    unused = ("format", "label_column", "header", "delimiter") if store else ("x", "y")
    for name in unused:
        if getattr(arguments, name) is not None:
            kind, option = "a store" if store else "a file", name.replace("_", "-")
            raise UserError(f"--{option}: is not for {kind}, and {arguments.source} is one")
    if arguments.no_labels and (arguments.y or arguments.label_column):
        raise UserError("--no-labels contradicts the option that names the labels")


if __name__ == "__main__":
    sys.exit(cli.run(main))
