"""The options of commands that read raw files: which columns, what becomes of them, how to read."""

from argparse import ArgumentParser

from bigsvm.readers import FORMATS
from bigsvm.tables.encoding import RULES, UNSEEN


def add_table_options(parser: ArgumentParser) -> None:
    """Add the options for a table whose columns have names."""
    add = parser.add_argument_group("columns of a table with names").add_argument
    add("--ignore", action="append", metavar="COLUMN", help="no feature; repeatable")
    add("--missing", choices=RULES, help="what becomes of missing values (default error); "
        "indicator: the mean, and a feature that says so")  # fmt: skip
    add("--categorical", action="append", metavar="COLUMN", help="a feature for each of its "
        "values; auto: all columns of text; repeatable")  # fmt: skip
    add("--unseen", choices=UNSEEN, help="a value of such a column that no training row has "
        "(default error)")  # fmt: skip


def add_reading_options(parser: ArgumentParser) -> None:
    """Add the options for reading a file with labels."""
    add = parser.add_argument_group("reading").add_argument
    add("--format", choices=FORMATS, help="default: found out")
    add("--label-column", metavar="NAME", help="name, or position from 0 (default: the last)")
    add("--weight-column", metavar="NAME", help="how much each row counts: kept beside the rows "
        "as `weight`, for model.sample_weight or model.weights of a config")  # fmt: skip
    add("--header", choices=("auto", "yes", "no"), help="whether a CSV file has one")
    add("--delimiter", metavar="C", help="of CSV")
    add("--features", metavar="D|COL,COL", help="number of features (LIBSVM, synthetic), or the "
        "columns of a table that become features")  # fmt: skip
