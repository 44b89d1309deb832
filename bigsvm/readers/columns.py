"""Which column is what, and how many features remain."""

from collections.abc import Sequence
from pathlib import Path

from bigsvm.errors import UserError
from bigsvm.readers import ReadOptions
from bigsvm.readers.wording import listed


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
        try:
            asked = int(asked)
        except ValueError:
            there = listed(list(names or [])) or "no names (no header line)"
            raise UserError(
                f"{path}: no column {asked!r} for the {purpose}; it has {there}"
            ) from None
    position = -1 if asked is None else asked
    if not -columns <= position < columns:
        raise UserError(
            f"{path}: no column {asked} for the {purpose}; it has {columns}, counted from 0"
        )
    return position % columns


def check_features(path: Path, d: int, options: ReadOptions) -> None:
    """Refuse a file without features, or with another number than asked for."""
    if d < 1:
        besides = " besides the label" if options.with_labels else ""
        raise UserError(f"{path}: no features in it{besides}; check the format and delimiter")
    if options.features is not None and d != options.features:
        raise UserError(f"{path}: {d} features in it where {options.features} are expected")
