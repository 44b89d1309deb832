"""Finding the encoding of a table: one pass over its files."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bigsvm.config.prepare_options import PrepareOptions
from bigsvm.core.errors import UserError
from bigsvm.core.messages import option, quoted, quoted_list
from bigsvm.readers.arrow_batches import NamedTable
from bigsvm.tables.columns import (
    BOOLEANS,
    category_values,
    is_text,
    number_values,
    refuse_other_types,
)
from bigsvm.tables.encoding import MISSING_CATEGORY, Column, Encoding, missing_value

MAX_CATEGORIES = 1000
MEDIAN_SAMPLE = 100_000  # values of a column, drawn at random, that its median is computed from
AUTO = "auto"


class ColumnFit:
    """What is known of a column after some batches."""

    def __init__(self, name: str, options: PrepareOptions) -> None:
        categorical = options.categorical or []
        self.name, self._options = name, options
        self._forced = name in categorical
        self._wanted = self._forced or AUTO in categorical
        self._text: tuple[str, str] | None = None  # a value that is not a number, and its location
        self._booleans_only = True
        self._typed = self._boolean = False
        self._missing = 0
        self._missing_at: tuple[Path, int] | None = None  # of a number
        self._count, self._mean = 0, 0.0
        self._sample = np.empty(0)
        self._draw = np.random.default_rng(0)
        self._categories: set[str] = set()

    def add(self, values: Any, where: Path, first: int) -> None:
        """Take the values of some rows, the first of which is row `first`, counted from 1."""
        refuse_other_types(values.type, where, self.name)
        found: np.ndarray | None = None
        self._typed = self._typed or not is_text(values.type)
        self._boolean = self._boolean or pa.types.is_boolean(values.type)
        if not self._forced and self._text is None:
            try:
                found = number_values(values, where, self.name, first)
            except UserError:
                if not is_text(values.type):
                    raise
        if found is None or (self._wanted and not self._typed):
            self._add_categories(values, where, first, no_number=found is None)
        if found is not None:
            self.add_numbers(found)
            if self._missing_at is None and np.isnan(found).any():
                self._missing_at = where, first + int(np.isnan(found).argmax())

    def add_numbers(self, found: np.ndarray) -> None:
        """Take the values of some rows as numbers, nan where one is missing."""
        present = found[~np.isnan(found)]
        self._booleans_only = self._booleans_only and not len(present)
        self._missing += len(found) - len(present)
        if not len(present):
            return
        total = self._count + len(present)
        self._mean += (float(present.mean()) - self._mean) * (len(present) / total)
        self._count = total
        if self._options.missing == "median":
            self._sample = np.concatenate([self._sample, present])
            if len(self._sample) > 2 * MEDIAN_SAMPLE:
                self._sample = self._draw.choice(self._sample, MEDIAN_SAMPLE, replace=False)

    def _add_categories(self, values: Any, where: Path, first: int, no_number: bool) -> None:
        for row, category in enumerate(category_values(values)):
            if category is None:
                self._missing += no_number
                continue
            self._booleans_only = self._booleans_only and category.lower() in BOOLEANS
            if no_number and self._text is None:
                self._text = category, f"{where}, row {first + row}"
            if len(self._categories) <= MAX_CATEGORIES:
                self._categories.add(category)

    def finish(self) -> Column:
        """The column, as determined from all rows."""
        rule = self._options.missing or "error"
        is_boolean = self._boolean or (self._text is not None and self._booleans_only)
        if self._forced or (self._text is not None and not is_boolean):
            return self._as_category()
        if rule == "error" and self._missing_at is not None:
            where, row = self._missing_at
            raise missing_value(where, row, self.name)
        if not self._count and not is_boolean:
            raise UserError(
                f"column {quoted(self.name)}: all of its values are missing; leave it out with "
                f"{option('ignore', self.name)}"
            )
        indicator = rule == "indicator" and self._missing > 0
        return Column(self.name, "boolean" if is_boolean else "number", self.fill, indicator)

    @property
    def fill(self) -> float | None:
        """What replaces a missing number; None if nothing does."""
        if self._options.missing in ("mean", "indicator"):
            return self._mean
        if self._options.missing == "median":
            return float(np.median(self._sample)) if len(self._sample) else 0.0
        return None

    def _as_category(self) -> Column:
        if not self._wanted:
            assert self._text is not None
            value, where = self._text
            raise UserError(
                f"{where}, column {quoted(self.name)}: {quoted(value)} is not a number; "
                f"{option('categorical', self.name)} makes indicators of its values, "
                f"{option('ignore', self.name)} leaves it out"
            )
        if len(self._categories) > MAX_CATEGORIES:
            raise UserError(
                f"column {quoted(self.name)}: more than {MAX_CATEGORIES:,} different values; is it "
                f"an id, or a text? leave it out with {option('ignore', self.name)}"
            )
        categories = sorted(self._categories)
        if self._missing and self._options.missing in ("mean", "median", "indicator"):
            categories.append(MISSING_CATEGORY)
        if not categories:
            raise UserError(
                f"column {quoted(self.name)}: all of its values are missing; leave it out with "
                f"{option('ignore', self.name)}"
            )
        return Column(self.name, "category", categories=tuple(categories))


def fit_encoding(
    tables: Sequence[NamedTable], names: Sequence[str], options: PrepareOptions
) -> Encoding:
    """The encoding of the columns `names`, fitted to all rows of the tables."""
    fits = [ColumnFit(name, options) for name in names]
    for table in tables:
        first = 1
        for part in table.batches(names):
            for fit in fits:
                fit.add(part.column(fit.name), table.path, first)
            first += part.num_rows
    columns = tuple(fit.finish() for fit in fits)
    return Encoding(columns, options.missing or "error", options.unseen or "error")


def refit_encoding(
    encoding: Encoding, batches: Iterable[tuple[str, np.ndarray]], options: PrepareOptions
) -> tuple[Encoding, np.ndarray]:
    """The encoding as the training rows alone determine it, and which of its features are left.

    `batches` are parts ("train" or "test") and some of their rows, nan where a number is missing.
    Gaps are filled with means or medians of training rows; a category, or an indicator of gaps,
    that no training row has is left out. Test rows with such a category follow `--unseen`.
    """
    fits = {place: ColumnFit(c.name, options) for place, c in encoding.gap_places.items()}
    present = {part: np.zeros(len(encoding.features), bool) for part in ("train", "test")}
    for part, x in batches:
        present[part] |= (x != 0).any(axis=0)
        if part == "train":
            for place, fit in fits.items():
                fit.add_numbers(x[:, place])
    columns, left, place = [], present["train"], 0
    for column in encoding.columns:
        own = slice(place, place + len(column.features))
        if column.kind == "category":
            fitted, unseen = [], []
            for category, train, test in zip(
                column.categories, left[own], present["test"][own], strict=True
            ):
                if train:
                    fitted.append(category)
                elif test and category != MISSING_CATEGORY:
                    unseen.append(category)
            if unseen and encoding.unseen == "error":
                raise UserError(
                    f"column {quoted(column.name)}: the split left {quoted_list(unseen)} to test "
                    "rows only; --unseen ignore takes them as none of the known values, another "
                    "--seed splits otherwise"
                )
            columns.append(replace(column, categories=tuple(fitted)))
        else:
            left[place] = True  # a number that is always 0 remains a feature
            fill = fits[place].fill if place in fits else column.fill
            indicator = column.indicator and bool(left[place + 1])
            columns.append(replace(column, fill=fill, indicator=indicator))
        place = own.stop
    return replace(encoding, columns=tuple(columns)), left
