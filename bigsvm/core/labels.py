"""Labels: from whatever values the data has to the codes of its classes, and back.

Of two classes the codes are -1 and +1; of more they are 0, 1, 2, ...
"""

from collections.abc import Collection, Mapping
from math import isfinite
from typing import Any

import numpy as np

from bigsvm.core.errors import UserError

Label = str | int | float
Classes = tuple[Label, ...]  # the original labels, in the order of their codes

REST = "rest"  # stands for -1 when one label is set against several others
# What a store or model of two classes says where the first is really called so.
REST_IS_A_LABEL = "rest_is_a_label"
MOST_VALUES = 1000  # more different labels than this can only be a wrong column


class RealRest(str):
    """The label of rows that are really called "rest", and stand for no others."""


def plain(value: Any) -> Label:
    """A label as Python and JSON know it: text, or an int where the number is whole."""
    if isinstance(value, bytes):
        value = text_of(value)
    if isinstance(value, str):
        return RealRest(value) if value == REST else str(value)
    if isinstance(value, int | np.integer):  # not by way of a float, which has 53 bits
        return int(value)
    number = float(value)
    return int(number) if number.is_integer() and abs(number) < 2**63 else number


def text_of(label: bytes) -> str:
    """The text of a label, in whichever of the two common encodings it is."""
    try:
        return label.decode()
    except UnicodeDecodeError:
        return label.decode("latin-1")


def as_array(classes: Classes) -> np.ndarray:
    """The labels as an array that holds each of them exactly."""
    if any(isinstance(label, str) for label in classes):
        return np.array([str(label) for label in classes])
    if not all(isinstance(label, int) for label in classes):
        values = np.array(classes, np.float64)
        return values if values.tolist() == list(classes) else np.array(classes, object)
    if all(-(2**63) <= label < 2**63 for label in classes):  # type: ignore[operator]
        return np.array(classes, np.int64)
    unsigned = all(0 <= label < 2**64 for label in classes)  # type: ignore[operator]
    return np.array(classes, np.uint64 if unsigned else object)


def check_label(label: Any) -> None:
    """A ValueError where something can be no label: a model may come from anybody."""
    if isinstance(label, float) and isfinite(label):
        return
    whole = isinstance(label, int) and not isinstance(label, bool)
    if whole and -(2**63) <= label < 2**64:
        return
    try:
        if isinstance(label, str) and label.encode():
            return
    except UnicodeEncodeError:
        pass
    raise ValueError(f"{str(label)[:50]!r} is no label")


def distinct(labels: np.ndarray, where: str) -> dict[Any, Label]:
    """Each different value in `labels` with its plain form; `where` is for messages."""
    if labels.dtype.kind in "biuf":
        values = np.unique(labels).tolist()
        missing = [value for value in values if isinstance(value, float) and not isfinite(value)]
    elif labels.dtype.kind in "OSUT":
        values = list(set(labels.tolist()))
        missing = [value for value in values if value is None or value != value]
    else:
        raise UserError(f"{where}: labels of type {labels.dtype} are neither numbers nor text")
    if missing:
        raise UserError(f"{where}: a label is {missing[0]}; give every row a label")
    if len(values) > MOST_VALUES:
        raise too_many(values, where)
    found = {value: plain(value) for value in values}
    if len(set(found.values())) < len(found):
        raise UserError(
            f"{where}: two different labels are the same text in UTF-8 and in Latin-1; use one "
            "encoding for all of them"
        )
    return found


def choose_classes(
    values: Collection[Label], positive: Label | None, where: str, rows: int | None = None
) -> Classes:
    """The classes in the order of their codes: the smaller label first; or the rest and `positive`.

    With `positive` there are two, whatever the number of labels. More than two in fewer than twice
    as many `rows` are no classes.
    """
    if positive is not None:
        chosen = [value for value in values if same(value, positive)]
        if not chosen:
            raise UserError(f"{where}: no row has the positive label {positive!r}; {seen(values)}")
        others = [value for value in values if value != chosen[0]]
        if len(others) > 1 and chosen[0] == REST:
            raise UserError(
                f"{where}: the positive label {REST!r} is what all others together are called; "
                "rename it"
            )
        if others:
            return (others[0] if len(others) == 1 else REST), chosen[0]
    if len(values) < 2:
        raise UserError(f"{where}: there is one class only; {seen(values)}; two are needed")
    few_rows = rows is not None and len(values) > 2 and 2 * len(values) > rows
    if len(values) > MOST_VALUES or few_rows:
        raise too_many(values, where, rows)
    return tuple(in_order(values))


def has_rest(classes: Classes) -> bool:
    """Whether the first of two classes stands for all labels but the second."""
    return len(classes) == 2 and classes[0] == REST and not isinstance(classes[0], RealRest)


def classes_to_json(classes: Classes) -> dict[str, Any]:
    """As a store or model keeps them; only a real "rest" needs a word more."""
    real = len(classes) == 2 and isinstance(classes[0], RealRest)
    return {"classes": list(classes)} | ({REST_IS_A_LABEL: True} if real else {})


def classes_from_json(about: Mapping[str, Any]) -> Classes:
    """The classes that a store or model has kept."""
    classes = tuple(about["classes"])
    return (RealRest(REST), *classes[1:]) if about.get(REST_IS_A_LABEL) is True else classes


def codes_of(classes: Classes) -> np.ndarray:
    """The codes of the classes, of the type that labels are stored in."""
    if len(classes) == 2:
        return np.array([-1, 1], np.int8)
    return np.arange(len(classes), dtype=np.int8 if len(classes) <= 128 else np.int16)


def sums_of(classes: Classes) -> int:
    """How many decision values a row has: one, or of more than two classes one each."""
    return 1 if len(classes) == 2 else len(classes)


def to_codes(labels: np.ndarray, classes: Classes, where: str) -> np.ndarray:
    """The code of each label; one that is in none of the classes is an error."""
    known = codes_of(classes)
    codes = np.empty(len(labels), known.dtype)
    for value, label in distinct(labels, where).items():
        codes[labels == value] = known[place_of(label, classes, where)]
    return codes


def signs_of(codes: np.ndarray, k: int) -> np.ndarray:
    """Of more than two classes: +1 for class k, -1 for the rest."""
    return np.where(codes == k, np.int8(1), np.int8(-1))


def place_of(label: Label, classes: Classes, where: str) -> int:
    """The number, from 0, of the class that a label belongs to."""
    # From the last: the first may be the rest, to which all others belong.
    for place in reversed(range(len(classes))):
        if same(label, classes[place]):
            return place
    if has_rest(classes):
        return 0
    if len(classes) == 2:
        raise UserError(f"{where}: label {label!r} is neither {classes[0]!r} nor {classes[1]!r}")
    raise UserError(
        f"{where}: label {label!r} is none of the {len(classes)} classes; {seen(classes)}"
    )


def same(label: Label, other: Label) -> bool:
    """Whether two labels mean the same; a number given as text ("1", "+1", "1.0") counts too."""
    if isinstance(label, str) == isinstance(other, str):
        return label == other
    try:
        return _number(label) == _number(other)
    except ValueError:
        return False


def _number(label: Label) -> int | float:
    """A number given as text; whole ones exactly."""
    if not isinstance(label, str):
        return label
    try:
        return int(label)
    except ValueError:
        return float(label)


def in_order(values: Collection[Label]) -> list[Label]:
    """Numbers by size; as soon as one value is text, all as text."""
    if any(isinstance(value, str) for value in values):
        return sorted(values, key=str)
    return sorted(values)  # exactly: as floats, large ones would be equal


def seen(values: Collection[Label]) -> str:
    """The labels there are, shortened for one line."""
    shown = ", ".join(repr(value) for value in in_order(values)[:8])
    return f"the labels are {shown}" + (", ..." if len(values) > 8 else "")


def too_many(values: Collection[Label], where: str, rows: int | None = None) -> UserError:
    """What to say where there are more labels than classes can be."""
    among = f" in {rows} rows" if rows else ""
    return UserError(
        f"{where}: {len(values)} different labels{among} are too many; "
        f"{seen(values)}; is it the right column? (`positive` trains one of them against the rest)"
    )
