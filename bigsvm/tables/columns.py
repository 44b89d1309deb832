"""The values of an Arrow column: numbers, true and false, or categories."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bigsvm.core.errors import UserError
from bigsvm.core.messages import option, quoted
from bigsvm.readers.chosen_columns import MISSING, numbers

BOOLEANS = {"true": 1.0, "false": 0.0}


def plain(values: Any) -> pa.Array:
    """One array, without a dictionary."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.ChunkedArray):  # of no chunk
        values = pa.array([], values.type)
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def is_text(kind: pa.DataType) -> bool:
    """Whether the values of a column are strings."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def refuse_other_types(kind: pa.DataType, where: Path, name: str) -> None:
    """Refuse a column that is neither numbers nor text: dates, lists, bytes."""
    number = (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
    )
    if number or is_text(kind):
        return
    advice = f"leave it out with {option('ignore', name)}"
    if pa.types.is_temporal(kind):
        advice += ", or make numbers of it first (the hour, the days since ...)"
    raise UserError(f"{where}: column {quoted(name)} holds {kind}, which is no number; {advice}")


def number_values(values: Any, where: Path | str, name: str, first: int) -> np.ndarray:
    """Numbers as float64, nan where the value is missing; infinite ones are refused."""
    found = numbers(plain(values), where, name, first)
    if np.isinf(found).any():
        row = first + int(np.isinf(found).argmax())
        raise UserError(f"{where}, row {row}, column {quoted(name)}: the value is not finite")
    return found


def boolean_values(values: Any, where: Path | str, name: str, first: int) -> np.ndarray:
    """Booleans, or the words true and false, as 1 and 0; nan where the value is missing."""
    values = plain(values)
    if not is_text(values.type):
        return number_values(values, where, name, first)
    found = np.full(len(values), np.nan)
    for row, text in enumerate(category_values(values)):
        if text is not None:
            value = BOOLEANS.get(text.lower())
            if value is None:
                raise UserError(
                    f"{where}, row {first + row}, column {quoted(name)}: {quoted(text)} is neither "
                    "true nor false"
                )
            found[row] = value
    return found


def category_values(values: Any) -> list[str | None]:
    """Categories as text, blanks around them removed; None where the value is missing."""
    values = plain(values)
    if not is_text(values.type):
        if pa.types.is_floating(values.type):
            values = pc.if_else(pc.is_nan(values), None, values)
        return [None if value is None else _as_text(value) for value in values.to_pylist()]
    return [
        None if text is None or text.strip().lower() in MISSING else text.strip()
        for text in values.to_pylist()
    ]


def _as_text(value: Any) -> str:
    """A number as CSV would have it: 3 rather than 3.0."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
