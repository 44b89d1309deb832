"""Which column is what, and how many features remain."""

import re
from collections.abc import Sequence
from pathlib import Path

from bigsvm.core.errors import UserError
from bigsvm.readers import ReadOptions
from bigsvm.readers.wording import listed, shown


def column_position(
    path: Path,
    asked: str | int | None,
    names: Sequence[str] | None,
    columns: int,
    purpose: str = "labels",
) -> int:
    """Position from 0 of the column `asked` for: a name, or a position; None is the last."""
    if isinstance(asked, str):
        if names is not None and asked in names:
            return list(names).index(asked)
        if not is_position(asked):
            there = listed(list(names or [])) or "no names (no header line)"
            raise UserError(f"{path}: no column {shown(asked)} for the {purpose}; it has {there}")
    position = -1 if asked is None else int(asked)
    if not is_position(position, columns):
        raise UserError(
            f"{path}: no column {asked} for the {purpose}; it has {columns}, counted from 0"
        )
    return position % columns


def is_position(asked: str | int, columns: int | None = None) -> bool:
    """Whether it can be a position, of so many columns or of any number, if it is no name."""
    if isinstance(asked, str) and not re.fullmatch("[+-]?[0-9]{1,18}", asked):
        return False
    return columns is None or -columns <= int(asked) < columns


def check_features(path: Path, d: int, options: ReadOptions) -> None:
    """Refuse a file without features, or with another number than asked for."""
    if d < 1:
        besides = " besides the label" if options.with_labels else ""
        raise UserError(f"{path}: no features in it{besides}; check the format and delimiter")
    if options.features is not None and d != options.features:
        raise UserError(f"{path}: {d} features in it where {options.features} are expected")
