"""CSV and TSV: rows of numbers with a label column, with or without a header line.

Parsed by a compiled kernel, not by pyarrow.csv: LIBSVM and MiniBooNE need the number parser anyway,
and pyarrow neither splits at runs of blanks nor reports the line of a bad value (it counts rows,
without empty lines).
"""

import csv
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from bigsvm.core.errors import UserError
from bigsvm.core.messages import one_line, quoted
from bigsvm.readers import MAX_FEATURES, Batch, ReadOptions
from bigsvm.readers.columns import check_features, column_position, is_position
from bigsvm.readers.decompress import line_blocks
from bigsvm.readers.number import as_number
from bigsvm.readers.table import explain_table, parse_table
from bigsvm.readers.text_rows import NO_LABEL_COLUMN, TextFormat, text_batches


class CsvReader:
    """See `bigsvm.readers`."""

    def __init__(self, path: Path, options: ReadOptions, tab: bool = False) -> None:
        self.path = path
        self.with_labels = options.with_labels
        line_number, line = _first_row(path)
        self.delimiter = _delimiter("\t" if tab else options.delimiter, line)
        fields = _split(f"{path}, line {line_number}", line, self.delimiter)
        if len(fields) > MAX_FEATURES:
            raise UserError(f"{path}: {len(fields)} columns, the limit is {MAX_FEATURES}")
        self.fields = len(fields)
        names = fields if self._has_header(fields, options) else None
        self.skip_lines = line_number if names else 0
        self.names = names
        self.label_column = NO_LABEL_COLUMN
        self._hint = ""
        if names:
            self._hint = "; --ignore leaves a column out, --categorical makes indicators of it"
        if options.with_labels and options.label_column is None:
            self._hint = "; is this the column of labels? --label-column names it"
        if options.with_labels:
            self.label_column = column_position(path, options.label_column, names, len(fields))
        self.d = len(fields) - options.with_labels
        check_features(path, self.d, options)
        self.feature_names = names and [
            name for k, name in enumerate(names) if k != self.label_column
        ]
        self.label = names[self.label_column] if names and options.with_labels else None

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order."""
        settings = np.array([ord(self.delimiter), self.fields, self.label_column], np.int64)
        form = TextFormat(
            parse_table,
            settings,
            self.d,
            self._column_name,
            partial(explain_table, self.fields),
            self.skip_lines,
            self.label_column,
            self._hint,
        )
        return text_batches(self.path, form, self.with_labels)

    def _column_name(self, column: int) -> str:
        return f"column {column}" + (f" ({quoted(self.names[column - 1])})" if self.names else "")

    def _has_header(self, fields: list[str], options: ReadOptions) -> bool:
        if options.header != "auto":
            return options.header
        label = -1
        column = options.label_column
        if isinstance(column, str) and column in fields and not is_position(column, len(fields)):
            return True
        if options.with_labels and (column is None or is_position(column)):
            label = column_position(self.path, column, None, len(fields))
        features = [field for k, field in enumerate(fields) if k != label]
        return any(features) and not any(_numeric(field) for field in features)


def _numeric(field: str) -> bool:
    return as_number(field) is not None or field.lower().lstrip("+-") in ("nan", "inf")


def _first_row(path: Path) -> tuple[int, str]:
    """Number and text of the first non-empty line."""
    number = 0
    for block in line_blocks(path):
        for line in block.tobytes().split(b"\n"):
            number += 1
            if line.strip():
                return number, line.decode(errors="replace").strip(" \r")
        number -= 1
    raise UserError(f"{path}: no rows in it (only empty lines)")


def _delimiter(given: str | None, line: str) -> str:
    if given is not None:
        character = "\t" if given == "\\t" else given
        if len(character) != 1 or not character.isascii() or character in '\0"\r\n.+-0123456789':
            raise UserError(f"delimiter: one character such as ',' or ';', not {given!r}")
        return character
    outside_quotes = "".join(line.split('"')[::2])
    counts = {candidate: outside_quotes.count(candidate) for candidate in ",;\t|"}
    best = max(counts, key=lambda candidate: counts[candidate])
    return best if counts[best] else " "


def _split(where: str, line: str, delimiter: str) -> list[str]:
    if delimiter == " ":
        line = " ".join(line.split())
    try:
        rows = csv.reader([f"{line}\n", "another"], delimiter=delimiter, skipinitialspace=True)
        row, *others = rows
    except csv.Error as failure:
        raise UserError(f"{where}: cannot be split into fields ({one_line(failure)})") from failure
    if not others:  # an open quote has swallowed the second line
        raise UserError(f"{where}: a quoted field is not closed on its line")
    return [field.strip() for field in row]
