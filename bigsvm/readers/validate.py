"""Validating rows and labels of binary formats."""

from pathlib import Path

import numpy as np

from bigsvm.core.errors import UserError
from bigsvm.core.labels import decode_text
from bigsvm.core.messages import quoted


def finite_rows(path: Path, x: np.ndarray, first_row: int, names: list[str] | None) -> np.ndarray:
    """`x` as C-contiguous float64; a UserError names row and column of a NaN or infinity."""
    with np.errstate(over="ignore"):
        rows = np.ascontiguousarray(x, np.float64)
    if np.isfinite(rows).all():
        return rows
    row, column = np.argwhere(~np.isfinite(rows))[0]
    where = f"feature {column + 1}" + (f" ({quoted(names[column])})" if names else "")
    raise UserError(
        f"{path}, row {first_row + row}, {where}: the value is {rows[row, column]}; "
        "remove or replace such values"
    )


def checked_labels(path: Path, y: np.ndarray, first_row: int) -> np.ndarray:
    """Labels as numbers or text; a UserError names the row of a missing label."""
    if y.dtype.kind in "biu":
        return y  # unchanged: as float64, some 64-bit integers would become equal
    if y.dtype.kind == "f":
        y = y.astype(np.float64)
        bad = np.flatnonzero(~np.isfinite(y))
    elif y.dtype.kind == "U":
        bad = np.flatnonzero(y == "")
    elif y.dtype.kind == "S":
        return checked_labels(
            path, np.array([decode_text(label) for label in y.tolist()]), first_row
        )
    else:
        raise UserError(f"{path}: labels of type {y.dtype} cannot be used; numbers or text can")
    if len(bad):
        raise UserError(f"{path}, row {first_row + bad[0]}: the label is missing")
    return y
