"""Rows that know the names of their columns: data frames and Arrow tables."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bigsvm.core.errors import UserError
from bigsvm.core.messages import quoted, quoted_list


def column_names(X: Any) -> list[str] | None:
    """The names of the columns of a data frame or an Arrow table; None where there are none.

    The columns that pandas numbers from 0 where it was given no names are not names.
    """
    names = getattr(X, "column_names", None)  # Arrow
    if names is None:
        names = getattr(X, "columns", None)  # pandas, polars
    if names is None or callable(names):
        return None
    found = list(names)
    return found if found and all(isinstance(name, str) for name in found) else None


def as_rows(X: Any, names: Sequence[str] | None) -> np.ndarray:
    """The rows as an array whose columns are `names`, in that order.

    Columns go by name where both the rows and the model have names: missing ones are an error,
    others are ignored. Otherwise they go by position.

    Parameters
    ----------
    X : array, data frame or Arrow table
    names : sequence of str, or None
        Of the features of a model.

    Returns
    -------
    array
    """
    ours = column_names(X)
    if ours is None or not names:
        return np.asarray(X)
    check_names(ours, names, "the rows")
    return np.asarray(X.select(names) if hasattr(X, "select") else X[list(names)])


def check_names(ours: Sequence[str], names: Sequence[str], where: str) -> None:
    """Refuse columns among which a feature of the model is missing, or is there twice."""
    known = set(ours)
    if missing := [name for name in names if name not in known]:
        raise UserError(
            f"{where}: has no column {quoted_list(missing)}, which the model needs; it has "
            f"{quoted_list(list(ours))}"
        )
    for name in names:
        if list(ours).count(name) > 1:
            raise UserError(f"{where}: column {quoted(name)} is there twice; rename one of them")
