"""Rows with named columns: data frames and Arrow tables."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bigsvm.core.errors import UserError
from bigsvm.core.messages import quoted, quoted_list
from bigsvm.tables.encoding import Encoding


def column_names(X: Any) -> list[str] | None:
    """The column names of a data frame or an Arrow table; None if there are none.

    The default numbering of pandas does not count as names.
    """
    names = getattr(X, "column_names", None)  # Arrow
    if names is None:
        names = getattr(X, "columns", None)  # pandas, polars
    if names is None or callable(names):
        return None
    found = list(names)
    return found if found and all(isinstance(name, str) for name in found) else None


def as_rows(X: Any, names: Sequence[str] | None, encoding: Encoding | None = None) -> np.ndarray:
    """The rows as an array whose columns are `names`, in that order.

    Columns are matched by name if both the rows and the model have names: missing ones are an
    error, others are ignored. Otherwise they are matched by position.

    Parameters
    ----------
    X : array, data frame or Arrow table
    names : sequence of str, or None
        The feature names of a model.
    encoding : Encoding, optional
        From the columns of a table to those features; rows without names have the features already.

    Returns
    -------
    array
    """
    ours = column_names(X)
    if ours is not None and encoding is not None:
        return _encode(X, ours, encoding)
    if ours is None or not names:
        return np.asarray(X)
    check_names(ours, names, "the rows")
    return np.asarray(X.select(names) if hasattr(X, "select") else X[list(names)])


def _encode(X: Any, ours: list[str], encoding: Encoding) -> np.ndarray:
    import pyarrow as pa

    check_names(ours, encoding.names, "the rows")
    if isinstance(X, pa.Table):
        table = X
    elif hasattr(X, "to_arrow"):  # polars
        table = X.to_arrow()
    else:
        table = pa.Table.from_pandas(X[encoding.names], preserve_index=False)
    rows, complete = encoding.encode(table, "the rows", 1)
    if not complete.all():
        raise UserError(
            f"the rows: a value is missing in row {int(complete.argmin()) + 1}; the training data "
            "was prepared without such rows (--missing drop)"
        )
    return rows


def check_names(ours: Sequence[str], names: Sequence[str], where: str) -> None:
    """Raise a UserError if a feature of the model is missing, or there twice."""
    known = set(ours)
    if missing := [name for name in names if name not in known]:
        raise UserError(
            f"{where}: has no column {quoted_list(missing)}, which the model needs; it has "
            f"{quoted_list(list(ours))}"
        )
    for name in names:
        if list(ours).count(name) > 1:
            raise UserError(f"{where}: column {quoted(name)} is there twice; rename one of them")
