"""Two-class labels: from whatever values the data has to -1 and +1, and back."""

from collections.abc import Collection
from typing import Any

import numpy as np

from bigsvm.errors import UserError

Label = str | int | float
Classes = tuple[Label, Label]  # the original labels of -1 and of +1

REST = "rest"  # stands for -1 when one label is set against several others
MOST_VALUES = 1000  # more different labels than this can only be a wrong column


def plain(value: Any) -> Label:
    """A label as Python and JSON know it: text, or an int where the number is whole."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, str):
        return str(value)
    number = float(value)
    return int(number) if number.is_integer() else number


def distinct(labels: np.ndarray, where: str) -> dict[Any, Label]:
    """Each different value in `labels` with its plain form; `where` is for messages."""
    if labels.dtype.kind in "biuf":
        values = np.unique(labels).tolist()
        missing = [value for value in values if not np.isfinite(value)]
    elif labels.dtype.kind in "OSUT":
        values = list(set(labels.tolist()))
        missing = [value for value in values if value is None or value != value]
    else:
        raise UserError(f"{where}: labels of type {labels.dtype} are neither numbers nor text")
    if missing:
        raise UserError(f"{where}: a label is {missing[0]}; give every row one of two labels")
    if len(values) > MOST_VALUES:
        raise too_many(values, where)
    return {value: plain(value) for value in values}


def choose_classes(values: Collection[Label], positive: Label | None, where: str) -> Classes:
    """Which label is -1 and which +1: the smaller and the larger, or the rest and `positive`."""
    if positive is not None:
        chosen = [value for value in values if same(value, positive)]
        if not chosen:
            raise UserError(f"{where}: no row has the positive label {positive!r}; {seen(values)}")
        others = [value for value in values if value != chosen[0]]
        if others:
            return (others[0] if len(others) == 1 else REST), chosen[0]
    if len(values) < 2:
        raise UserError(f"{where}: there is one class only; {seen(values)}; two are needed")
    if len(values) > 2:
        raise too_many(values, where)
    smaller, larger = in_order(values)
    return smaller, larger


def to_signs(labels: np.ndarray, classes: Classes, where: str) -> np.ndarray:
    """`labels` as int8 -1 and +1; a label that is in neither class is an error."""
    signs = np.zeros(len(labels), dtype=np.int8)
    for value, label in distinct(labels, where).items():
        if same(label, classes[1]):
            sign = 1
        elif same(label, classes[0]) or classes[0] == REST:
            sign = -1
        else:
            raise UserError(
                f"{where}: label {label!r} is neither {classes[0]!r} nor {classes[1]!r}"
            )
        signs[labels == value] = sign
    return signs


def same(label: Label, other: Label) -> bool:
    """Whether two labels mean the same; a number given as text ("1", "+1", "1.0") counts too."""
    if isinstance(label, str) == isinstance(other, str):
        return label == other
    try:
        return float(label) == float(other)
    except ValueError:
        return False


def in_order(values: Collection[Label]) -> list[Label]:
    """Numbers by size; as soon as one value is text, all as text."""
    if any(isinstance(value, str) for value in values):
        return sorted(values, key=str)
    return sorted(values, key=float)


def seen(values: Collection[Label]) -> str:
    """The labels there are, shortened for one line."""
    shown = ", ".join(repr(value) for value in in_order(values)[:8])
    return f"the labels are {shown}" + (", ..." if len(values) > 8 else "")


def too_many(values: Collection[Label], where: str) -> UserError:
    return UserError(
        f"{where}: {len(values)} different labels where two are needed; {seen(values)}; "
        "set `positive` to one of them to train it against the rest"
    )
