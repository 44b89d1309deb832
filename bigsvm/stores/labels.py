"""The labels beside the rows of a data set, as codes of its classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from bigsvm.core.errors import UserError
from bigsvm.core.labels import (
    Classes,
    Label,
    choose_classes,
    class_codes,
    class_index,
    classes_from_json,
    distinct_labels,
    encode_labels,
    has_rest,
)
from bigsvm.stores.group import wrap_read_errors

LABELS_AT_A_TIME = 2**20
# What a prepared store of more than two classes says of itself; those of two say nothing.
FORMAT_KEY, MULTICLASS_FORMAT = "bigsvm_format", "bigsvm store 2"


class StoredLabels:
    """The labels of a data set.

    Parameters
    ----------
    y : array or None
        Any that reads when it is sliced: (n,) or (n, 1); None where it is opened without labels.
    n : int
        Number of rows.
    where : str
        For messages.
    stored : tuple of labels, optional
        Of a prepared store: `y` holds the codes of these classes. Otherwise it holds labels.
    """

    def __init__(self, y: Any | None, n: int, where: str, stored: Classes | None) -> None:
        self._y = y
        self._n = n
        self._where = where
        self._all: np.ndarray | None = None
        self._stored = stored
        self._classes = stored
        self._made_of_stored: np.ndarray | None = None  # the code of each class that is stored

    @property
    def there(self) -> bool:
        """Whether there are any."""
        return self._y is not None

    @property
    def classes(self) -> Classes:
        """The original labels, in the order of their codes."""
        if self._classes is None:
            raise UserError(f"{self._where}: was opened without labels")
        return self._classes

    def settle(self, positive: Label | None, classes: Classes | None) -> None:
        """Settle which original label has which code: as in `classes`, or else find them."""
        if self._stored is not None:
            if positive is not None and classes is None:
                classes = choose_classes(self._stored, positive, self._where)
            if classes is not None:
                self._classes = classes
                self._made_of_stored = self._codes_made_of_stored(self._stored, classes)
            return
        if classes is None:
            values: set[Label] = set()
            for start, stop in self._spans():
                values.update(distinct_labels(self._read(start, stop), self._where).values())
            classes = choose_classes(values, positive, self._where, self._n)
        self._classes = classes
        for start, stop in self._spans():
            self.codes(start, stop)  # a label of no class is better known now

    def all(self) -> np.ndarray:
        """The codes of all rows, (n,), read once; the array is shared, so it is read-only."""
        if self._all is None:
            self._all = np.concatenate([self.codes(*span) for span in self._spans()])
            self._all.setflags(write=False)
        return self._all

    def codes(self, start: int, stop: int) -> np.ndarray:
        """The codes of rows start to stop, read now and not kept."""
        if self._y is None:
            raise UserError(f"{self._where}: was opened without labels")
        if self._stored is None:
            return encode_labels(self._read(start, stop), self.classes, self._where)
        codes = self._codes_of_stored(self._stored, start, stop)
        if self._made_of_stored is None:
            return codes
        return self._made_of_stored[np.searchsorted(class_codes(self._stored), codes)]

    def as_written(self) -> Iterator[np.ndarray]:
        """The codes of a prepared store as they were written, many rows at a time."""
        assert self._stored is not None
        for start, stop in self._spans():
            yield self._codes_of_stored(self._stored, start, stop)

    def _codes_of_stored(self, stored: Classes, start: int, stop: int) -> np.ndarray:
        known = class_codes(stored)
        found = self._read(start, stop)
        codes = np.asarray(found, dtype=known.dtype)
        if wrong := np.flatnonzero(~np.isin(found, known)).tolist():
            what = "neither -1 nor +1" if len(known) == 2 else f"not from 0 to {known[-1]}"
            raise UserError(
                f"{self._where}: label {found[wrong[0]]} in row {start + wrong[0]} (counted from "
                f"0) is {what}; the store is damaged, make it again"
            )
        return codes

    def _codes_made_of_stored(self, stored: Classes, classes: Classes) -> np.ndarray:
        try:
            if has_rest(stored) and set(stored) != set(classes):
                raise UserError("nobody knows what is in that rest")
            places = [class_index(label, classes, self._where) for label in stored]
        except UserError as stranger:
            raise UserError(
                f"{self._where}: its classes {stored} are not {classes}, those of the "
                "model; choose data with the same classes"
            ) from stranger
        return class_codes(classes)[places]

    def _read(self, start: int, stop: int) -> np.ndarray:
        assert self._y is not None
        with wrap_read_errors(f"{self._where}, labels"):
            return np.asarray(self._y[start:stop]).reshape(-1)

    def _spans(self) -> Iterator[tuple[int, int]]:
        for start in range(0, self._n, LABELS_AT_A_TIME):
            yield start, min(start + LABELS_AT_A_TIME, self._n)


def recorded_classes(about: Mapping[str, Any], where: str) -> Classes:
    """The classes of a prepared store, by its attributes."""
    classes = classes_from_json(about)
    if len(classes) < 2:
        raise ValueError(f"classes {classes}")
    version = about.get(FORMAT_KEY)
    if version != (MULTICLASS_FORMAT if len(classes) > 2 else None):
        raise UserError(
            f"{where}: is {version!r}, of another version of bigsvm; use it with that one, or make "
            "it again"
        )
    return classes
