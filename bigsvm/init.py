"""Write a config to start from: python -m bigsvm.init DATA [--out mine.yaml]."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bigsvm import cli
from bigsvm.core.errors import UserError
from bigsvm.files.atomic import write_text
from bigsvm.terminal.logs import print_result

if TYPE_CHECKING:
    from bigsvm.config.starter import Facts

EXAMPLES = """examples:
  python -m bigsvm.init mine.zarr                          writes mine.yaml
  python -m bigsvm.init mine.csv --label-column class --out first.yaml

For a store, a sample of the training rows is read. For a file, the config has `data.source`, and
`train` prepares it, with the scaling `standard` and a quarter of the rows as the test set.
"""


def parse_arguments(argv: Sequence[str] | None) -> Namespace:
    """Read the command line."""
    parser = cli.Arguments(
        "bigsvm.init",
        "Write a commented config for a store or a file: kernel width from the data, "
        "memory limit from the machine.",
        EXAMPLES,
    )
    add = parser.add_argument
    add("data", metavar="DATA", type=Path, help="a store (Zarr, HDF5) or a file as for prepare")
    add("--out", metavar="CONFIG.yaml", type=Path, help="default: named after DATA, here")
    add("--label-column", metavar="NAME", help="of a file (default: the last column)")
    add("--overwrite", action="store_true", help="replace an existing config")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `python -m bigsvm.init`."""
    arguments = parse_arguments(argv)
    stem = arguments.data.name.partition(".")[0] or "mine"
    out = arguments.out or Path(f"{stem}.yaml")
    cli.check_output("--out", out, [".yaml", ".yml"], "a config is YAML")
    if out.exists() and not arguments.overwrite:
        raise UserError(f"{out}: exists already; --overwrite replaces it, --out names another")
    from bigsvm.config.starter import starter_config, suggested_memory
    from bigsvm.prediction.inputs import is_store

    if is_store(arguments.data):
        if arguments.label_column is not None:
            raise UserError(f"--label-column: is for a file, and {arguments.data} is a store")
        facts = _facts_of_store(arguments.data)
    else:
        facts = _facts_of_file(arguments.data, arguments.label_column)
    write_text(out, starter_config(facts, stem, suggested_memory()))
    print_result(f"written to {out}; next: python -m bigsvm.train {out}")
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


def _facts_of_file(path: Path, label_column: str | None) -> "Facts":
    import numpy as np

    from bigsvm.config.starter import SAMPLE_ROWS, Facts, suggested_sigma
    from bigsvm.core.scaling import ScalingFit
    from bigsvm.readers import ReadOptions, open_reader

    reader = open_reader(path, ReadOptions(label_column=label_column))
    batch = next(reader.batches())
    fit = ScalingFit(reader.d)
    fit.add(batch.x[:SAMPLE_ROWS])
    sigma = suggested_sigma(fit.finish("standard", None).apply(batch.x[:SAMPLE_ROWS]))
    labels, counts = np.unique(batch.y.astype(str), return_counts=True)
    if len(labels) < 2:
        raise UserError(
            f"{path}: all of its first {len(batch.y):,} labels are {str(labels[0])!r}; is "
            "--label-column the right one?"
        )
    if len(labels) > 100:
        raise UserError(
            f"{path}: {len(labels):,} different labels in its first {len(batch.y):,} rows; is "
            "--label-column the right one?"
        )
    options: dict[str, object] = {"scaling": "standard", "test_fraction": 0.25}
    if label_column is not None:
        options["label_column"] = label_column
    data = {"source": str(path), "prepare": options}
    rows: int | None = getattr(reader, "n", None)
    shares = dict(zip(labels.tolist(), (counts / len(batch.y)).tolist(), strict=True))
    return Facts(data, rows, reader.d, shares, sigma)


if __name__ == "__main__":
    sys.exit(cli.run(main))
