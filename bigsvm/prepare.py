"""Raw files into a store: python -m bigsvm.prepare SOURCE STORE [options]."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from bigsvm import cli
from bigsvm.core.errors import UserError
from bigsvm.core.scaling import KINDS
from bigsvm.preparation.sources import SOURCES, SYNTHETIC
from bigsvm.stores.writer import COMPRESSIONS
from bigsvm.tables.arguments import add_reading_options, add_table_options
from bigsvm.tables.files import SourceName, spooled
from bigsvm.terminal.progress import show_progress
from bigsvm.terminal.signals import exit_on_sigterm

EXAMPLES = """examples:
  python -m bigsvm.prepare miniboone mb.zarr --scaling standard --clip 8 --test-rows 12825
  python -m bigsvm.prepare mine.csv.gz mine.h5 --label-column class --test-fraction 0.2
  python -m bigsvm.prepare mine.csv mine.zarr --label-column class --weight-column importance
  python -m bigsvm.prepare train.libsvm mine.zarr --test-file test.libsvm --scaling minmax
  python -m bigsvm.prepare parts/ mine.zarr --label-column class --ignore id --categorical auto
  python -m bigsvm.prepare 'log-*.csv.gz' mine.zarr --missing median --features age,income
  python -m bigsvm.prepare new.csv new.zarr --like runs/mine
  zcat *.gz | python -m bigsvm.prepare - mine.zarr
  python -m bigsvm.prepare synthetic big.zarr --rows 1000000 --features 50
"""


def parse_arguments(argv: Sequence[str] | None) -> Namespace:
    """Read the command line."""
    parser = cli.Arguments(
        "bigsvm.prepare",
        "Stream raw files into a chunked store, in bounded memory.",
        f"named sources: {', '.join(SOURCES)}, {SYNTHETIC}\n(./NAME for a file of that "
        f"name)\n\n{EXAMPLES}",
    )
    add = parser.add_argument
    add("source", metavar="SOURCE", nargs="+", help="a named source, or a file: LIBSVM, CSV, TSV, "
        "Parquet, Arrow, npy, npz, MiniBooNE text; text also gz, bz2, xz. Several files, a pattern "
        "in quotes, or a folder of CSV, Parquet or Arrow parts are one table; - is standard "
        "input")  # fmt: skip
    add("store", metavar="STORE", type=Path, help="what to make: *.zarr, *.h5 or *.hdf5")
    add("--overwrite", action="store_true", help="replace an existing store")
    add("--like", type=Path, metavar="STORE|MODEL", help="prepare labelled files exactly as the "
        "training data of this store, model or run was, as a test set")  # fmt: skip
    split = parser.add_argument_group("test set")
    add = split.add_argument
    add("--test-file", type=Path, metavar="FILE", help="rows of this file")
    add("--test-rows", type=int, metavar="N", help="exactly N rows, chosen by the seed")
    add("--test-fraction", type=float, metavar="F", help="this part of the rows")
    add("--seed", type=int, metavar="N", help="of the split and of synthetic data (default 0)")
    content = parser.add_argument_group("rows and features")
    add = content.add_argument
    add("--scaling", choices=KINDS, help="fitted on the training rows only (default: "
        "standard; none for LIBSVM text, named sources and synthetic data)")  # fmt: skip
    add("--clip", type=float, metavar="C", help="bring scaled values to [-C, C]")
    add("--drop-value", metavar="V", help="drop rows that are V in every feature; none: keep "
        "what a named source drops")  # fmt: skip
    add("--positive", metavar="LABEL", help="the label of +1, against all others (default: the "
        "larger of two; of more labels each is a class)")  # fmt: skip
    add_table_options(parser)
    add_reading_options(parser)
    synthetic = parser.add_argument_group("the source synthetic")
    add = synthetic.add_argument
    add("--rows", type=int, metavar="N", help="number of synthetic rows")
    add("--noise", type=float, metavar="S", help="overlap of synthetic classes (default 0.1)")
    writing = parser.add_argument_group("writing")
    add = writing.add_argument
    add("--chunk-rows", type=int, metavar="N", help="default: as many as make 8 MiB")
    add("--compression", choices=COMPRESSIONS, help="default: zstd for Zarr, none for HDF5")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `python -m bigsvm.prepare`."""
    arguments = parse_arguments(argv)
    # Not at the top: these import pydantic, numba and pyarrow, for which `--help` must not wait.
    from bigsvm.config.prepare_options import options_from_arguments
    from bigsvm.preparation.pipeline import prepare
    from bigsvm.terminal.compiling import notify_compilation

    options = options_from_arguments(vars(arguments))
    with exit_on_sigterm(), spooled(arguments.source, arguments.store) as source:
        if arguments.like is not None:
            return _prepare_like(source, arguments)
        with show_progress() as progress, notify_compilation():
            summary = prepare(
                source,
                arguments.store,
                options,
                arguments.test_file,
                progress,
                arguments.overwrite,
            )
    if not arguments.quiet:
        print(summary)
    return 0


FITTED = (
    "test_file", "test_rows", "test_fraction", "seed", "scaling", "clip", "drop_value", "positive",
    "ignore", "missing", "categorical", "unseen", "weight_column", "features", "rows", "noise",
)  # fmt: skip


def _prepare_like(source: SourceName, arguments: Namespace) -> int:
    """Run `prepare --like`."""
    from bigsvm.config.prepare_options import options_from_arguments
    from bigsvm.prediction.like import preparation_of, prepare_like

    for name in FITTED:
        if getattr(arguments, name) is not None:
            option = name.replace("_", "-")
            raise UserError(f"--{option}: is taken from --like {arguments.like}; leave it out")
    options = options_from_arguments(vars(arguments)).to_read()
    like = preparation_of(arguments.like)
    store, overwrite = arguments.store, arguments.overwrite
    with show_progress() as progress:
        rows = prepare_like(source, store, like, options, overwrite=overwrite, progress=progress)
    if not arguments.quiet:
        print(f"test: {rows:,} rows x {like.n_features} features, like {arguments.like}")
        print(f"written to {store}")
    return 0


if __name__ == "__main__":
    sys.exit(cli.run(main))
