"""Raw files into a store: python -m bigsvm.prepare SOURCE STORE [options]."""

import os
import sys
import time
from argparse import Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bigsvm import cli
from bigsvm.config.prepare_options import PrepareOptions, validate_options
from bigsvm.core.errors import DISK_FULL, UserError
from bigsvm.core.labels import Classes
from bigsvm.core.progress import Progress, no_progress
from bigsvm.core.scaling import KINDS, Scaling, ScalingFit
from bigsvm.files.staging import staging_dir
from bigsvm.preparation.inputs import (
    SYNTHETIC,
    Input,
    check_source,
    open_inputs,
    with_source_defaults,
)
from bigsvm.preparation.sources import SOURCES, file_digests, source_files
from bigsvm.preparation.spill import Spill
from bigsvm.preparation.split import TrainTestSplit
from bigsvm.readers import FORMATS
from bigsvm.stores.store import WEIGHT
from bigsvm.stores.writer import COMPRESSIONS, StoreMetadata, StoreWriter, check_target
from bigsvm.terminal.progress import show_progress
from bigsvm.terminal.signals import exit_on_sigterm

FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Summary:
    """What `prepare` has made."""

    store: Path
    d: int
    classes: Classes
    counts: dict[str, tuple[int, ...]]  # part -> rows of each class
    dropped: int
    scaling: Scaling
    weighted: bool
    seconds: float

    def __str__(self) -> str:
        signs = (" (-1)", " (+1)") if len(self.classes) == 2 else [""] * len(self.classes)
        lines = [
            f"{part}: {sum(counts):,} rows x {self.d} features; "
            + ", ".join(
                f"{label} {count:,}{sign}"
                for label, count, sign in zip(self.classes, counts, signs, strict=True)
            )
            for part, counts in self.counts.items()
        ]
        if self.dropped:
            lines.append(f"dropped: {self.dropped:,} rows")
        clip = "" if self.scaling.clip is None else f", clipped to {self.scaling.clip:g}"
        lines.append(f"scaling: {self.scaling.kind}{clip}")
        if self.weighted:
            lines.append(f"weights: {WEIGHT}, beside the rows (--set model.sample_weight={WEIGHT})")
        lines.append(f"written to {self.store} in {self.seconds:.1f} s")
        return "\n".join(lines)


def prepare(
    source: str | Path,
    store: Path,
    options: PrepareOptions | None = None,
    test_file: Path | None = None,
    progress: Progress = no_progress,
    overwrite: bool = False,
) -> Summary:
    """Stream `source` into `store`, which appears whole or not at all.

    Parameters
    ----------
    source : str or Path
        A named source (see `bigsvm.preparation.sources`), `synthetic`, or a file.
    store : Path
        The Zarr (`*.zarr`) or HDF5 (`*.h5`) store to make.
    options : PrepareOptions
    test_file : Path, optional
        A file whose rows become the test set; otherwise the options may split one off.
    progress : callable
        Called with (what is being done, how much is done, how much in all or None).
    overwrite : bool
        Replace an existing store.

    Returns
    -------
    Summary
    """
    begin = time.monotonic()
    store = Path(store)
    check_source(source)
    options = with_source_defaults(source, options or PrepareOptions())
    check_target(store, options.compression, overwrite)
    with full_disk_explained(store), ExitStack() as stack:
        folder = stack.enter_context(staging_dir(store, "spill"))
        files = source_files(source, progress)
        if test_file is not None:
            files["test"] = Path(test_file)
        inputs = open_inputs(source, options, files)
        # Before they are read: rewritten meanwhile, they must not pass for what was read.
        digests = file_digests(files, progress)
        weighted = options.weight_column is not None
        spills = {}
        for part, data in inputs.items():
            spills[part] = stack.enter_context(Spill(folder, part, data.reader.d, weighted))
            parse(data, spills[part], options, progress)
        names = {part: data.name for part, data in inputs.items()}
        test_rows = size_of_test_split(spills["train"].n, options)
        parts = TrainTestSplit(spills, test_rows, options.seed, options.positive, names)
        scaling = fit(parts, options, progress)
        about = StoreMetadata(
            classes=parts.classes,
            scaling=scaling,
            feature_names=inputs["train"].reader.feature_names,
            source=str(source),
            files=digests,
            prepare=options.model_dump(mode="json", exclude_none=True),
        )
        with StoreWriter(
            store,
            parts.rows,
            parts.d,
            about,
            chunk_rows=options.chunk_rows,
            compression=options.compression,
            overwrite=overwrite,
            weighted=weighted,
        ) as writer:
            done = 0
            for part, x, codes, weight in parts.batches():
                writer.append(part, scaled(x, scaling), codes, weight)
                done += len(x)
                progress("writing rows", done, sum(parts.rows.values()))
    seconds = time.monotonic() - begin
    known = (parts.d, parts.classes, parts.counts, parts.dropped, scaling, weighted)
    return Summary(store, *known, seconds)


def parse(data: Input, spill: Spill, options: PrepareOptions, progress: Progress) -> None:
    """Read all of `data` into `spill`."""
    drop = None if options.drop_value == "none" else options.drop_value
    for batch in data.reader.batches():
        if options.scaling == "none" and options.clip is None:
            too_large = np.abs(batch.x) > FLOAT32_MAX
            if too_large.any():
                row, column = np.argwhere(too_large)[0]
                raise UserError(
                    f"{data.name}, {batch.location(row)}, feature {column + 1}: "
                    f"{batch.x[row, column]:g} does not fit into float32; use --scaling or --clip"
                )
        spill.append(batch, drop, data.name)
        progress(f"reading rows of {Path(data.name).name}", spill.n, None)
    if spill.n == 0:
        dropped = f" ({spill.dropped} were dropped)" if spill.dropped else ""
        raise UserError(f"{data.name}: no rows are left{dropped}")


def size_of_test_split(n: int, options: PrepareOptions) -> int:
    """How many of n rows go to the test set."""
    test_rows = options.test_rows or 0
    if options.test_fraction is not None:
        test_rows = max(1, round(n * options.test_fraction))
    if test_rows >= n:
        raise UserError(f"{test_rows} test rows of {n} leave none to train on; take fewer")
    return test_rows


def fit(parts: TrainTestSplit, options: PrepareOptions, progress: Progress) -> Scaling:
    """Fit the scaling on the training rows only."""
    collected = ScalingFit(parts.d)
    if options.scaling != "none":
        for part, x, *_ in parts.batches():
            if part == "train":
                collected.add(x)
                progress("fitting the scaling", collected.count, parts.rows["train"])
    return collected.finish(options.scaling, options.clip)


def scaled(x: np.ndarray, scaling: Scaling) -> np.ndarray:
    """The rows as they are stored: float32, all finite."""
    rows = scaling.apply(x)
    if not np.isfinite(rows).all():
        row, column = np.argwhere(~np.isfinite(rows))[0]
        raise UserError(
            f"feature {column + 1}: the value {x[row, column]:g}, scaled, does not fit into "
            "float32; use --clip"
        )
    return rows


@contextmanager
def full_disk_explained(store: Path) -> Iterator[None]:
    """Say what was being written when there was no space left."""
    try:
        yield
    except OSError as problem:
        if problem.errno in DISK_FULL:
            raise OSError(
                problem.errno,
                f"no room is left there ({os.strerror(problem.errno)}); besides the store, 8 bytes "
                "a value are needed for a while",
                str(store),
            ) from problem
        raise


EXAMPLES = """examples:
  python -m bigsvm.prepare miniboone mb.zarr --scaling standard --clip 8 --test-rows 12825
  python -m bigsvm.prepare mine.csv.gz mine.h5 --label-column class --test-fraction 0.2
  python -m bigsvm.prepare mine.csv mine.zarr --label-column class --weight-column importance
  python -m bigsvm.prepare train.libsvm mine.zarr --test-file test.libsvm --scaling minmax
  python -m bigsvm.prepare synthetic big.zarr --rows 1000000 --features 50
"""


def parse_arguments(argv: Sequence[str] | None) -> Namespace:
    """Read the command line."""
    parser = cli.Arguments(
        prog="python -m bigsvm.prepare",
        description="Stream raw files into a chunked store, in bounded memory.",
        epilog=f"named sources: {', '.join(SOURCES)}, {SYNTHETIC}\n(./NAME for a file of that "
        f"name)\n\n{EXAMPLES}",
        formatter_class=RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("source", metavar="SOURCE", help="a named source, or a file: LIBSVM, CSV, TSV, Parquet, "
        "npy, npz, MiniBooNE text; text also gz, bz2, xz")  # fmt: skip
    add("store", metavar="STORE", type=Path, help="what to make: *.zarr, *.h5 or *.hdf5")
    add("--overwrite", action="store_true", help="replace an existing store")
    add("--quiet", action="store_true", help="show neither progress nor summary")
    split = parser.add_argument_group("test set")
    add = split.add_argument
    add("--test-file", type=Path, metavar="FILE", help="rows of this file")
    add("--test-rows", type=int, metavar="N", help="exactly N rows, chosen by the seed")
    add("--test-fraction", type=float, metavar="F", help="this part of the rows")
    add("--seed", type=int, metavar="N", help="of the split and of synthetic data (default 0)")
    content = parser.add_argument_group("rows and features")
    add = content.add_argument
    add("--scaling", choices=KINDS, help="fitted on the training rows only (default none)")
    add("--clip", type=float, metavar="C", help="bring scaled values to [-C, C]")
    add("--drop-value", metavar="V", help="drop rows that are V in every feature; none: keep "
        "what a named source drops")  # fmt: skip
    add("--positive", metavar="LABEL", help="the label of +1, against all others (default: the "
        "larger of two; of more labels each is a class)")  # fmt: skip
    reading = parser.add_argument_group("reading")
    add = reading.add_argument
    add("--format", choices=FORMATS, help="default: found out")
    add("--label-column", metavar="NAME", help="name, or position from 0 (default: the last)")
    add("--weight-column", metavar="NAME", help="how much each row counts: kept beside the rows "
        "as `weight`, for model.sample_weight or model.weights of a config")  # fmt: skip
    add("--header", choices=("auto", "yes", "no"), help="whether a CSV file has one")
    add("--delimiter", metavar="C", help="of CSV")
    add("--features", type=int, metavar="D", help="number of features (LIBSVM, synthetic)")
    add("--rows", type=int, metavar="N", help="number of synthetic rows")
    add("--noise", type=float, metavar="S", help="overlap of synthetic classes (default 0.1)")
    writing = parser.add_argument_group("writing")
    add = writing.add_argument
    add("--chunk-rows", type=int, metavar="N", help="default: as many as make 8 MiB")
    add("--compression", choices=COMPRESSIONS, help="default: zstd for Zarr, none for HDF5")
    return parser.parse_args(argv)


def options_from(arguments: Namespace) -> PrepareOptions:
    """The options that were given, as their types want them."""
    given = {
        key: value
        for key, value in vars(arguments).items()
        if key in PrepareOptions.model_fields and value is not None
    }
    if "header" in given:
        given["header"] = {"auto": "auto", "yes": True, "no": False}[given["header"]]
    return validate_options(given)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `python -m bigsvm.prepare`."""
    arguments = parse_arguments(argv)
    options = options_from(arguments)
    asked = (arguments.source, arguments.store, options, arguments.test_file)
    from bigsvm.terminal.compiling import notify_compilation

    with exit_on_sigterm():
        if arguments.quiet:
            prepare(*asked, overwrite=arguments.overwrite)
            return 0
        with show_progress() as progress, notify_compilation():
            summary = prepare(*asked, progress=progress, overwrite=arguments.overwrite)
    print(summary)
    return 0


if __name__ == "__main__":
    sys.exit(cli.run(main))
