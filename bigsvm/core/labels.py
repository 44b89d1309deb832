"""Labels: encoding the values found in data as class codes, and decoding them.

Two classes have the codes -1 and +1; more classes have 0, 1, 2, ...
"""

from collections.abc import Collection, Mapping
from math import isfinite
from typing import Any

import numpy as np

from bigsvm.core.errors import UserError

Label = str | int | float
Classes = tuple[Label, ...]  # the original labels, in the order of their codes

REST = "rest"  # the name of class -1 when one label is trained against several others
# Recorded by a store or model of two classes if the data itself has the label "rest".
REST_IS_A_LABEL = "rest_is_a_label"
MAX_CLASSES = 1000  # more distinct labels than this mean that the column is wrong


class RealRest(str):
    """The label "rest" of the data itself, as opposed to `REST`."""


def to_label(value: Any) -> Label:
    """Convert a value to a label that JSON can hold: text or a number, an int if it is whole."""
    if isinstance(value, bytes):
        value = decode_text(value)
    if isinstance(value, str):
        return RealRest(value) if value == REST else str(value)
    if isinstance(value, int | np.integer):  # not through a float, which has only 53 bits
        return int(value)
    number = float(value)
    return int(number) if number.is_integer() and abs(number) < 2**63 else number


def decode_text(label: bytes) -> str:
    """Decode the text of a label as UTF-8, or as Latin-1 if that fails."""
    try:
        return label.decode()
    except UnicodeDecodeError:
        return label.decode("latin-1")


def classes_array(classes: Classes) -> np.ndarray:
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
    """Raise ValueError for a value that cannot be a label: a model file may not be trustworthy."""
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
    raise ValueError(f"{str(label)[:50]!r} is not a label")


def distinct_labels(labels: np.ndarray, where: str) -> dict[Any, Label]:
    """Map each distinct value in `labels` to its label; `where` is for messages."""
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
    if len(values) > MAX_CLASSES:
        raise too_many_labels(values, where)
    found = {value: to_label(value) for value in values}
    if len(set(found.values())) < len(found):
        raise UserError(
            f"{where}: two different labels are the same text in UTF-8 and in Latin-1; use one "
            "encoding for all of them"
        )
    return found


def choose_classes(
    values: Collection[Label], positive: Label | None, where: str, rows: int | None = None
) -> Classes:
    """The classes in the order of their codes: sorted labels, or `REST` and `positive`.

    With `positive` there are two classes, however many labels there are. Without it, more than two
    labels are rejected if `rows` is less than twice their number: the column is probably wrong.
    """
    if positive is not None:
        chosen = [value for value in values if same_label(value, positive)]
        if not chosen:
            found = describe_labels(values)
            raise UserError(f"{where}: no row has the positive label {positive!r}; {found}")
        others = [value for value in values if value != chosen[0]]
        if len(others) > 1 and chosen[0] == REST:
            raise UserError(
                f"{where}: the positive label {REST!r} is also the name for all other labels; "
                "rename it"
            )
        if others:
            return (others[0] if len(others) == 1 else REST), chosen[0]
    if len(values) < 2:
        found = describe_labels(values)
        raise UserError(f"{where}: there is one class only; {found}; two are needed")
    few_rows = rows is not None and len(values) > 2 and 2 * len(values) > rows
    if len(values) > MAX_CLASSES or few_rows:
        raise too_many_labels(values, where, rows)
    return tuple(sorted_labels(values))


def has_rest(classes: Classes) -> bool:
    """Whether the first of two classes stands for all labels but the second."""
    return len(classes) == 2 and classes[0] == REST and not isinstance(classes[0], RealRest)


def classes_to_json(classes: Classes) -> dict[str, Any]:
    """The classes as a store or model records them; a `RealRest` needs a second key."""
    real = len(classes) == 2 and isinstance(classes[0], RealRest)
    return {"classes": list(classes)} | ({REST_IS_A_LABEL: True} if real else {})


def classes_from_json(about: Mapping[str, Any]) -> Classes:
    """The classes that a store or model has recorded."""
    classes = tuple(about["classes"])
    return (RealRest(REST), *classes[1:]) if about.get(REST_IS_A_LABEL) is True else classes


def class_codes(classes: Classes) -> np.ndarray:
    """The codes of the classes, in the type that stores use."""
    if len(classes) == 2:
        return np.array([-1, 1], np.int8)
    return np.arange(len(classes), dtype=np.int8 if len(classes) <= 128 else np.int16)


def n_outputs_for(classes: Classes) -> int:
    """The number of decision values per row: one for two classes, else one for each class."""
    return 1 if len(classes) == 2 else len(classes)


def encode_labels(labels: np.ndarray, classes: Classes, where: str) -> np.ndarray:
    """The class code of each label; a label that belongs to no class is an error."""
    known = class_codes(classes)
    codes = np.empty(len(labels), known.dtype)
    for value, label in distinct_labels(labels, where).items():
        codes[labels == value] = known[class_index(label, classes, where)]
    return codes


def one_vs_rest_signs(codes: np.ndarray, k: int) -> np.ndarray:
    """+1 for class k, -1 for the rest."""
    return np.where(codes == k, np.int8(1), np.int8(-1))


def class_index(label: Label, classes: Classes, where: str) -> int:
    """The position in `classes` of the class that a label belongs to."""
    # Backwards, because the first class may be the rest, to which every other label belongs.
    for index in reversed(range(len(classes))):
        if same_label(label, classes[index]):
            return index
    if has_rest(classes):
        return 0
    if len(classes) == 2:
        raise UserError(f"{where}: label {label!r} is neither {classes[0]!r} nor {classes[1]!r}")
    known = describe_labels(classes)
    raise UserError(f"{where}: label {label!r} is none of the {len(classes)} classes; {known}")


def same_label(label: Label, other: Label) -> bool:
    """Whether two labels are equal; a number given as text ("1", "+1", "1.0") counts too."""
    if isinstance(label, str) == isinstance(other, str):
        return label == other
    try:
        return _number(label) == _number(other)
    except ValueError:
        return False


def _number(label: Label) -> int | float:
    """The number that a label is, or that its text denotes; whole numbers exactly."""
    if not isinstance(label, str):
        return label
    try:
        return int(label)
    except ValueError:
        return float(label)


def sorted_labels(values: Collection[Label]) -> list[Label]:
    """Numbers by size; if any value is text, all as text."""
    if any(isinstance(value, str) for value in values):
        return sorted(values, key=str)
    return sorted(values)  # exact: as floats, large integers would compare equal


def describe_labels(values: Collection[Label]) -> str:
    """The first eight labels, for a message."""
    shown = ", ".join(repr(value) for value in sorted_labels(values)[:8])
    return f"the labels are {shown}" + (", ..." if len(values) > 8 else "")


def too_many_labels(values: Collection[Label], where: str, rows: int | None = None) -> UserError:
    """The error for more labels than there can be classes."""
    among = f" in {rows} rows" if rows else ""
    return UserError(
        f"{where}: {len(values)} different labels{among} are too many; {describe_labels(values)}; "
        "is it the right column? (`positive` trains one of them against the rest)"
    )
