"""Chosen columns of a table as features; the table may have others (ids, notes, dates)."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bigsvm.core.errors import UserError
from bigsvm.core.messages import quoted
from bigsvm.readers import Batch
from bigsvm.readers.arrow_batches import NamedTable
from bigsvm.readers.labels import LabelDecoder
from bigsvm.readers.number import NOT_A_NUMBER, as_number
from bigsvm.readers.validate import checked_labels

MISSING = ("", "?", "nan", "na", "n/a", "null", "none")  # in text, ignoring case


class ChosenColumns:
    """Reads the columns `features`, in this order, and optionally labels; see `bigsvm.readers`."""

    def __init__(self, table: NamedTable, features: Sequence[str], label: str | None) -> None:
        self._table, self.label = table, label
        self.n = table.n
        self.feature_names: list[str] | None = list(features)
        self.d = len(self.feature_names)

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order."""
        assert self.feature_names is not None
        columns = [*self.feature_names, *([] if self.label is None else [self.label])]
        labels = LabelDecoder(self._table.path) if self._table.is_text else None
        first = 1
        for part in self._table.batches(columns):
            x = np.empty((part.num_rows, self.d))
            for position, name in enumerate(self.feature_names):
                x[:, position] = present_numbers(part.column(name), self._table.path, name, first)
            y = np.empty(0)
            if self.label is not None:
                y = labels_of(part.column(self.label), self._table.path, first, labels)
            yield Batch(x, y, first)
            first += part.num_rows
        if first == 1:
            raise UserError(f"{self._table.path}: no rows in it")


def present_numbers(values: pa.Array, path: Path, name: str, first: int) -> np.ndarray:
    """The numbers of a column, all present and finite; `first` is the row of values[0], from 1."""
    found = numbers(values, path, name, first)
    if not np.isfinite(found).all():
        row = int(np.argmin(np.isfinite(found)))
        what = "is missing" if np.isnan(found[row]) else "is not finite"
        raise UserError(f"{path}, row {first + row}, column {quoted(name)}: the value {what}")
    return found


def numbers(values: pa.Array, path: Path | str, name: str, first: int) -> np.ndarray:
    """The numbers of a column as float64, NaN for missing values."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        values = values.dictionary_decode()
        kind = values.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _numbers_in_text(values, path, name, first)
    if not is_number(kind):
        raise UserError(f"{path}: column {quoted(name)} holds {kind}, not numbers")
    if pa.types.is_boolean(kind):
        values = values.cast(pa.uint8())
    if pa.types.is_decimal(kind):
        values = values.cast(pa.float64())
    return values.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)


def _numbers_in_text(values: pa.Array, path: Path | str, name: str, first: int) -> np.ndarray:
    trimmed = pc.utf8_trim_whitespace(values)
    missing = pc.fill_null(pc.is_in(pc.utf8_lower(trimmed), pa.array(MISSING)), True)
    present = pc.if_else(missing, None, trimmed)
    try:
        return present.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:  # a leading plus, an overflow, or no number
        found = np.empty(len(values))
        for row, token in enumerate(present.to_pylist()):
            value = np.nan if token is None else as_number(token)
            if value is None:
                raise UserError(
                    f"{path}, row {first + row}, column {quoted(name)}: {quoted(token)} is not a "
                    "finite number"
                ) from None
            found[row] = value
        return found


def labels_of(
    values: pa.Array, path: Path, first: int, decoder: LabelDecoder | None = None
) -> np.ndarray:
    """The labels in a column; the decoder turns text that is all numbers into numbers."""
    if values.null_count:
        raise UserError(f"{path}, row {first + first_null(values)}: the label is missing")
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        if decoder is not None:
            return _labels_in_text(
                pc.utf8_trim_whitespace(values.cast(pa.string())), first, decoder
            )
        return checked_labels(path, np.array(values.to_pylist(), np.str_), first)
    if not is_number(kind):
        raise UserError(f"{path}: labels of type {kind} cannot be used")
    if pa.types.is_decimal(kind):
        try:
            values = values.cast(pa.int64() if kind.scale <= 0 else pa.float64())
        except pa.ArrowInvalid as failure:
            raise UserError(f"{path}: labels of type {kind} do not fit into 64 bits") from failure
    return checked_labels(path, values.to_numpy(zero_copy_only=False), first)


def is_number(kind: pa.DataType) -> bool:
    """Whether an Arrow type is one of numbers, or boolean."""
    types = pa.types
    is_real = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    return is_real or types.is_boolean(kind)


def first_null(values: pa.Array) -> int:
    """The position of the first missing value."""
    return int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))


def _labels_in_text(values: pa.Array, first: int, decoder: LabelDecoder) -> np.ndarray:
    _, offsets, text = values.buffers()
    ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    spans = np.column_stack([ends[:-1], ends[1:]]).astype(np.int64)
    known = np.full(len(values), NOT_A_NUMBER, np.int8)  # so that the decoder parses all of them
    lines = np.arange(first + 1, first + 1 + len(values))  # the header is line 1
    content = np.frombuffer(text or b"\0", np.uint8)
    return decoder.decode(content, spans, np.empty(len(values)), known, lines)
