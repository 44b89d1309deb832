"""Write a config to start from: python -m bigsvm.init DATA [--out mine.yaml]."""

import re
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bigsvm import cli
from bigsvm.core.errors import UserError
from bigsvm.core.messages import shell_command
from bigsvm.files.atomic import write_text
from bigsvm.tables.arguments import add_reading_options, add_table_options
from bigsvm.tables.files import COMPRESSED, expand
from bigsvm.terminal.logs import print_result

if TYPE_CHECKING:
    from bigsvm.config.prepare_options import PrepareOptions
    from bigsvm.config.starter import Facts

EXAMPLES = """examples:
  python -m bigsvm.init mine.zarr                          writes mine.yaml
  python -m bigsvm.init mine.csv --label-column class --out first.yaml
  python -m bigsvm.init parts/ --label-column class --ignore id --categorical auto --missing mean

For a store, a sample of the training rows is read. For files, the config has `data.source` with
these options, and `train` prepares them, with the scaling `standard` and a quarter of the rows as
the test set.
"""


def parse_arguments(argv: Sequence[str] | None) -> Namespace:
    """Read the command line."""
    parser = cli.Arguments(
        "bigsvm.init",
        "Write a commented config for a store or for files: kernel width from the data, "
        "memory limit from the machine.",
        EXAMPLES,
    )
    add = parser.add_argument
    add("data", metavar="DATA", type=Path, help="a store (Zarr, HDF5); or, as for prepare, a file, "
        "a pattern in quotes, or a folder of CSV, Parquet or Arrow parts")  # fmt: skip
    add("--out", metavar="CONFIG.yaml", type=Path, help="default: named after DATA, here")
    add("--overwrite", action="store_true", help="replace an existing config")
    add_table_options(parser)
    add_reading_options(parser)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `python -m bigsvm.init`."""
    arguments = parse_arguments(argv)
    stem = re.sub(r"[*?\[\]]+", "", arguments.data.name.partition(".")[0]).strip("-_ ") or "mine"
    out = arguments.out or Path(f"{stem}.yaml")
    cli.check_output("--out", out, [".yaml", ".yml"], "a config is YAML")
    if out.exists() and not arguments.overwrite:
        raise UserError(f"{out}: exists already; --overwrite replaces it, --out names another")
    from bigsvm.config.prepare_options import options_from_arguments
    from bigsvm.config.starter import starter_config, suggested_memory
    from bigsvm.prediction.inputs import is_store

    options = options_from_arguments(vars(arguments))
    if is_store(arguments.data):
        if given := sorted(options.model_fields_set):
            name = "features" if given[0] == "columns" else given[0].replace("_", "-")
            raise UserError(f"--{name}: is for raw files, and {arguments.data} is a store")
        facts = _facts_of_store(arguments.data)
    else:
        facts = _facts_of_files(arguments.data, options)
    write_text(out, starter_config(facts, out.stem, suggested_memory()))
    print_result(f"written to {out}; next: {shell_command('train', out)}")
    return 0


def _facts_of_store(path: Path) -> "Facts":
    import numpy as np

    from bigsvm.config.starter import SAMPLE_ROWS, Facts, suggested_sigma
    from bigsvm.core.labels import class_codes
    from bigsvm.stores.group import open_group
    from bigsvm.stores.store import open_dataset

    group = open_group(path)
    try:
        has_test = "X" not in group and "test" in group
    finally:
        group.close()
    with open_dataset(path) as dataset:
        index = np.unique(np.linspace(0, dataset.n - 1, SAMPLE_ROWS).astype(np.int64))
        sigma = suggested_sigma(dataset.gather(index))
        places = np.searchsorted(class_codes(dataset.classes), dataset.labels())
        counts = np.bincount(places, minlength=len(dataset.classes))
        data = {"train": str(path)} | ({"test": str(path / "test")} if has_test else {})
        shares = dict(zip(dataset.classes, (counts / dataset.n).tolist(), strict=True))
        return Facts(data, dataset.n, dataset.d, shares, sigma)


def _facts_of_files(source: Path, options: "PrepareOptions") -> "Facts":
    import numpy as np

    from bigsvm.config.starter import SAMPLE_ROWS, Facts, suggested_sigma
    from bigsvm.core.scaling import ScalingFit
    from bigsvm.readers import open_reader
    from bigsvm.tables.reader import needs_table, open_table

    files = expand(str(source))
    table = needs_table(files, options)
    reader = open_table(files, options) if table else open_reader(files[0], options.to_read())
    rows, counts, read = [], Counter[str](), 0
    for batch in reader.batches():
        counts.update(batch.y.astype(str).tolist())
        rows.append(batch.x[: SAMPLE_ROWS - min(read, SAMPLE_ROWS)])
        read += len(batch.x)
        if read >= SAMPLE_ROWS and len(counts) > 1:  # a file may have one class after the other
            break
    if len(counts) < 2:
        only = next(iter(counts), "")
        raise UserError(
            f"{source}: all of its {read:,} labels are {only!r}; is --label-column the right one?"
        )
    if len(counts) > 100:
        raise UserError(
            f"{source}: {len(counts):,} different labels in its first {read:,} rows; is "
            "--label-column the right one?"
        )
    sample = np.concatenate(rows)
    fit = ScalingFit(reader.d)
    fit.add(sample)
    sigma = suggested_sigma(fit.finish("standard", None).apply(sample))
    given = options.model_dump(mode="json", exclude_unset=True)
    prepared = {**given, "scaling": "standard", "test_fraction": 0.25}
    shares = {label: counts[label] / read for label in sorted(counts)}
    known: int | None = getattr(reader, "n", None)
    total = known if known is not None else _lines_in(files)
    return Facts({"source": str(source), "prepare": prepared}, total, reader.d, shares, sigma)


def _lines_in(files: Sequence[Path]) -> int | None:
    """About how many lines text files have, by their size; None if they are compressed."""
    if any(path.suffix.lower() in (*COMPRESSED, ".zip") for path in files):
        return None
    with files[0].open("rb") as file:
        start = file.read(2**20)
    lines = max(1, start.count(b"\n"))
    total = sum(path.stat().st_size for path in files) * lines / max(1, len(start))
    return int(float(f"{total:.2g}"))


if __name__ == "__main__":
    sys.exit(cli.run(main))
