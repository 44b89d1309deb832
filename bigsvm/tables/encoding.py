"""From the columns of a table to features: numbers as they are, categories as indicators.

It is fitted to the training files, recorded in the store and in the model, and applied to raw rows
at prediction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.core.errors import UserError
from bigsvm.core.messages import columns_there, quoted

if TYPE_CHECKING:
    import pyarrow as pa

MISSING_CATEGORY = "(missing)"
RULES = ("error", "drop", "mean", "median", "indicator")
UNSEEN = ("error", "ignore")
KINDS = ("number", "boolean", "category")


@dataclass(frozen=True)
class Column:
    """One column of the table.

    Attributes
    ----------
    name : str
    kind : {"number", "boolean", "category"}
    fill : float or None
        What stands for a missing number, where the rule has one.
    indicator : bool
        Whether a feature of its own says that the number was missing.
    categories : tuple of str
    """

    name: str
    kind: str
    fill: float | None = None
    indicator: bool = False
    categories: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.kind == "category":
            return f"{self.name}: one of {len(self.categories):,} values"
        fill = "" if self.fill is None else f", {self.fill:.6g} where missing"
        return f"{self.name}: {self.kind}{fill}" + (", with an indicator" if self.indicator else "")

    @property
    def features(self) -> list[str]:
        """The names of the features it becomes."""
        if self.kind == "category":
            return [f"{self.name}={category}" for category in self.categories]
        return [self.name, *([f"{self.name} {MISSING_CATEGORY}"] if self.indicator else [])]


@dataclass(frozen=True)
class Encoding:
    """How every column becomes features.

    Attributes
    ----------
    columns : tuple of Column
        In the order of their features.
    missing : one of RULES
    unseen : one of UNSEEN
        Of a category that no training row had.
    """

    columns: tuple[Column, ...]
    missing: str = "error"
    unseen: str = "error"

    @property
    def names(self) -> list[str]:
        """The names of the columns that it takes."""
        return [column.name for column in self.columns]

    @property
    def features(self) -> list[str]:
        """The names of the features that it makes."""
        return [feature for column in self.columns for feature in column.features]

    @property
    def gap_places(self) -> dict[int, Column]:
        """The features whose gaps are filled with a number, and the columns they are of."""
        places, place = {}, 0
        for column in self.columns:
            if column.fill is not None:
                places[place] = column
            place += len(column.features)
        return places

    def fill_gaps(self, x: np.ndarray) -> None:
        """Fill the gaps that `encode` has left, in place."""
        for place, column in self.gap_places.items():
            values = x[:, place]
            values[np.isnan(values)] = column.fill

    def to_json(self) -> dict[str, Any]:
        """The encoding as JSON, as stores and models record it."""
        return {**asdict(self), "columns": [asdict(column) for column in self.columns]}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Encoding:
        """The inverse of `to_json`; raises ValueError for anything else."""
        columns = tuple(
            Column(
                str(column["name"]),
                str(column["kind"]),
                None if column["fill"] is None else float(column["fill"]),
                bool(column["indicator"]),
                tuple(map(str, column["categories"])),
            )
            for column in found["columns"]
        )
        made = cls(columns, str(found["missing"]), str(found["unseen"]))
        known = made.missing in RULES and made.unseen in UNSEEN
        fills = [column.fill for column in columns if column.fill is not None]
        if not known or any(column.kind not in KINDS for column in columns):
            raise ValueError("its encoding of columns is not a known one")
        if not np.isfinite(fills).all() or len(set(made.names)) != len(made.names):
            raise ValueError("its encoding of columns is none")
        return made

    def encode(
        self,
        part: pa.RecordBatch | pa.Table,
        where: Path | str,
        first: int,
        leave_gaps: bool = False,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The features of some rows, and which rows have all of their values.

        Parameters
        ----------
        part : RecordBatch or Table
            Has the columns `names`.
        where : path or str
            For messages.
        first : int
            The row of part[0], counted from 1.
        leave_gaps : bool
            Leave nan where a number is missing, for `fill_gaps`.

        Returns
        -------
        (rows, features) float64, (rows,) bool
            Rows that miss a value are False under the rule "drop"; otherwise there are none.
        """
        x = np.empty((part.num_rows, len(self.features)))
        complete = np.ones(part.num_rows, bool)
        place = 0
        for column in self.columns:
            values = part.column(column.name)
            width = len(column.features)
            block = x[:, place : place + width]
            if column.kind == "category":
                absent = self._indicators(column, values, block, where, first)
            else:
                absent = self._numbers(column, values, block, where, first)
            if absent.any() and self.missing in ("error", "drop"):
                if self.missing == "error":
                    raise missing_value(where, first + int(absent.argmax()), column.name)
                complete &= ~absent
            place += width
        if not leave_gaps:
            self.fill_gaps(x)
        return x, complete

    def _numbers(
        self, column: Column, values: Any, out: np.ndarray, where: Path | str, first: int
    ) -> np.ndarray:
        from bigsvm.tables.columns import boolean_values, number_values

        read = boolean_values if column.kind == "boolean" else number_values
        found = read(values, where, column.name, first)
        absent = np.isnan(found)
        out[:, 0] = found
        if column.indicator:
            out[:, 1] = absent
        return absent

    def _indicators(
        self, column: Column, values: Any, out: np.ndarray, where: Path | str, first: int
    ) -> np.ndarray:
        from bigsvm.tables.columns import category_values

        found = category_values(values)
        absent = np.array([category is None for category in found], bool)
        place_of = {category: k for k, category in enumerate(column.categories)}
        out[:] = 0.0
        for row, category in enumerate(found):
            if category is None:
                category = MISSING_CATEGORY
                if category not in place_of:
                    continue
            place = place_of.get(category)
            if place is None:
                if self.unseen == "ignore":
                    continue
                raise UserError(
                    f"{where}, row {first + row}, column {quoted(column.name)}: no training row "
                    f"has {quoted(category)}; correct it, or prepare or predict with --unseen "
                    "ignore"
                )
            out[row, place] = 1.0
        return absent


def missing_value(where: Path | str, row: int, name: str) -> UserError:
    """The error for a missing value."""
    return UserError(
        f"{where}, row {row}, column {quoted(name)}: the value is missing; prepare with --missing "
        "drop, mean, median or indicator, or leave the column out with --ignore"
    )


def check_columns(names: Sequence[str], wanted: Sequence[str], option: str, where: object) -> None:
    """Refuse a column that an option names and the table does not have."""
    for name in wanted:
        if name not in names:
            raise UserError(
                f"--{option} {name}: {where} has no such column; {columns_there(name, names)}"
            )
