"""Which column holds the labels, the weights and each of the features."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from bigsvm.core.errors import UserError
from bigsvm.core.messages import columns_there, quoted
from bigsvm.core.weights import WEIGHT_RANGE, valid_weights
from bigsvm.readers import Batch, Reader, ReadOptions, open_reader

Names = Sequence[str] | None


def column_position(
    path: Path,
    column: str | int | None,
    names: Names,
    columns: int,
    purpose: str = "labels",
) -> int:
    """Position from 0 of a column given by name or position; None means the last."""
    if isinstance(column, str):
        if names is not None and column in names:
            return list(names).index(column)
        if not is_position(column):
            there = columns_there(column, names) if names else "it has no names (no header line)"
            raise UserError(f"{path}: no column {quoted(column)} for the {purpose}; {there}")
    position = -1 if column is None else int(column)
    if not is_position(position, columns):
        raise UserError(
            f"{path}: no column {column} for the {purpose}; it has {columns}, counted from 0"
        )
    return position % columns


def is_position(column: str | int, columns: int | None = None) -> bool:
    """Whether `column`, if it is not a name, is a position among `columns` columns (None: any)."""
    if isinstance(column, str) and not re.fullmatch("[+-]?[0-9]{1,18}", column):
        return False
    return columns is None or -columns <= int(column) < columns


def check_features(path: Path, d: int, options: ReadOptions) -> None:
    """Reject a file without features, or with another number of features than requested."""
    if d < 1:
        besides = " besides the label" if options.with_labels else ""
        raise UserError(f"{path}: no features in it{besides}; check the format and delimiter")
    if options.features is not None and d != options.features:
        raise UserError(f"{path}: {d} features in it where {options.features} are expected")


class WeightedReader:
    """Takes one column of another reader as the `weight` of its batches; see `bigsvm.readers`."""

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self.path = path
        self._table = open_reader(path, replace(options, weight_column=None, features=None))
        if not hasattr(self._table, "label_column"):
            raise UserError(
                f"{path}: this format has no columns to take weights from; use CSV, TSV, Parquet "
                "or npy"
            )
        names: list[str] | None = getattr(self._table, "names", None)
        label: int = self._table.label_column if options.with_labels else -1
        chosen, columns = options.weight_column, self._table.d + options.with_labels
        position = column_position(path, chosen, names, columns, "weights")
        if position == label:
            raise UserError(
                f"{path}: column {chosen!r} holds the labels, not weights; name the column of "
                "labels with --label-column"
            )
        self._column = position - (position > label >= 0)  # among the features
        self._where = f"column {position + 1}" + (f" ({quoted(names[position])})" if names else "")
        self.n: int | None = getattr(self._table, "n", None)  # unknown for text files
        self.label: str | None = getattr(self._table, "label", None)
        self.d = self._table.d - 1
        check_features(path, self.d, options)
        self.feature_names = self._table.feature_names and [
            name for k, name in enumerate(self._table.feature_names) if k != self._column
        ]

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order."""
        for batch in self._table.batches():
            weight = batch.x[:, self._column].copy()
            valid = valid_weights(weight)
            if not valid.all():
                row = int(np.argmin(valid))
                raise UserError(
                    f"{self.path}, {batch.location(row)}, {self._where}: {weight[row]:g} is no "
                    f"weight; {WEIGHT_RANGE}"
                )
            yield replace(batch, x=np.delete(batch.x, self._column, axis=1), weight=weight)


class ReorderedReader:
    """Yields the features of another reader in another order; see `bigsvm.readers`."""

    def __init__(self, reader: Reader, names: Sequence[str]) -> None:
        assert reader.feature_names is not None
        self._reader = reader
        self._order = [reader.feature_names.index(name) for name in names]
        self.n: int | None = getattr(reader, "n", None)  # unknown for text files
        self.d = reader.d
        self.feature_names: list[str] | None = list(names)

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order."""
        for batch in self._reader.batches():
            yield replace(batch, x=batch.x[:, self._order].copy())


def match_features(reader: Reader, names: Names, where: str, whose: str) -> Reader:
    """The reader of the file `where`, with its features in the order of `names`.

    Features are matched by name if both sides have names, because the order of the columns in a
    file is arbitrary; otherwise by position. Names that do not match are an error.
    """
    ours = reader.feature_names
    if names and ours and sorted(ours) == sorted(names) and len(set(ours)) == len(ours):
        return reader if ours == list(names) else ReorderedReader(reader, names)
    reject_other_names(
        ours, names, where, whose, "rename its columns (is --label-column the right one?)"
    )
    return reader


def reject_other_names(ours: Names, names: Names, where: str, whose: str, advice: str) -> None:
    """Reject feature names that differ from `names`, or come in another order, if both exist."""
    if not names or not ours:
        return
    for position, (one, other) in enumerate(zip(ours, names, strict=True), start=1):
        if one != other:
            raise UserError(
                f"{where}: its feature {position} is {quoted(one)} where {whose} has "
                f"{quoted(other)}; {advice}"
            )
