"""The labels of a data set, as class codes."""

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

LABELS_PER_READ = 2**20
# The format attribute of a prepared store with more than two classes; with two there is none.
FORMAT_KEY, MULTICLASS_FORMAT = "bigsvm_format", "bigsvm store 2"


class StoredLabels:
    """The labels of a data set.

    Parameters
    ----------
    y : array or None
        (n,) or (n, 1), read when it is sliced; None if the data set is opened without labels.
    n : int
        Number of rows.
    where : str
        For messages.
    recorded : tuple of labels, optional
        The classes of a prepared store, whose `y` holds class codes. Otherwise `y` holds labels.
    """

    def __init__(self, y: Any | None, n: int, where: str, recorded: Classes | None) -> None:
        self._y = y
        self._n = n
        self._where = where
        self._all: np.ndarray | None = None
        self._recorded = recorded
        self._classes = recorded
        self._recoded: np.ndarray | None = None  # the code for each recorded class, if it differs

    @property
    def present(self) -> bool:
        """Whether the data set was opened with labels."""
        return self._y is not None

    @property
    def classes(self) -> Classes:
        """The original labels, in the order of their codes."""
        if self._classes is None:
            raise UserError(f"{self._where}: was opened without labels")
        return self._classes

    def resolve_classes(self, positive: Label | None, classes: Classes | None) -> None:
        """Decide which label has which code: by `classes`, or else by the labels found."""
        if self._recorded is not None:
            if positive is not None and classes is None:
                classes = choose_classes(self._recorded, positive, self._where)
            if classes is not None:
                self._classes = classes
                self._recoded = self._codes_for_recorded(self._recorded, classes)
            return
        if classes is None:
            values: set[Label] = set()
            for start, stop in self._spans():
                values.update(distinct_labels(self._read(start, stop), self._where).values())
            classes = choose_classes(values, positive, self._where, self._n)
        self._classes = classes
        for start, stop in self._spans():
            self.codes(start, stop)  # report a label of no class now rather than later

    def all(self) -> np.ndarray:
        """The codes of all rows, (n,), read once; shared, and therefore read-only."""
        if self._all is None:
            self._all = np.concatenate([self.codes(*span) for span in self._spans()])
            self._all.setflags(write=False)
        return self._all

    def codes(self, start: int, stop: int) -> np.ndarray:
        """The codes of rows start to stop; read now and not kept."""
        if self._y is None:
            raise UserError(f"{self._where}: was opened without labels")
        if self._recorded is None:
            return encode_labels(self._read(start, stop), self.classes, self._where)
        codes = self._read_recorded(self._recorded, start, stop)
        if self._recoded is None:
            return codes
        return self._recoded[np.searchsorted(class_codes(self._recorded), codes)]

    def recorded_codes(self) -> Iterator[np.ndarray]:
        """Yield the codes of a prepared store as they were written, many rows at a time."""
        assert self._recorded is not None
        for start, stop in self._spans():
            yield self._read_recorded(self._recorded, start, stop)

    def _read_recorded(self, recorded: Classes, start: int, stop: int) -> np.ndarray:
        known = class_codes(recorded)
        found = self._read(start, stop)
        codes = np.asarray(found, dtype=known.dtype)
        if wrong := np.flatnonzero(~np.isin(found, known)).tolist():
            what = "neither -1 nor +1" if len(known) == 2 else f"not from 0 to {known[-1]}"
            raise UserError(
                f"{self._where}: label {found[wrong[0]]} in row {start + wrong[0]} (counted from "
                f"0) is {what}; the store is damaged, make it again"
            )
        return codes

    def _codes_for_recorded(self, recorded: Classes, classes: Classes) -> np.ndarray:
        try:
            if has_rest(recorded) and set(recorded) != set(classes):
                raise UserError("the labels behind the rest are not recorded")
            indices = [class_index(label, classes, self._where) for label in recorded]
        except UserError as mismatch:
            raise UserError(
                f"{self._where}: its classes {recorded} are not {classes}, those of the "
                "model; choose data with the same classes"
            ) from mismatch
        return class_codes(classes)[indices]

    def _read(self, start: int, stop: int) -> np.ndarray:
        assert self._y is not None
        with wrap_read_errors(f"{self._where}, labels"):
            return np.asarray(self._y[start:stop]).reshape(-1)

    def _spans(self) -> Iterator[tuple[int, int]]:
        for start in range(0, self._n, LABELS_PER_READ):
            yield start, min(start + LABELS_PER_READ, self._n)


def recorded_classes(about: Mapping[str, Any], where: str) -> Classes:
    """The classes that `prepare` recorded in the attributes of a store."""
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
