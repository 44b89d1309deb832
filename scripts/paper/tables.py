"""Results as CSV files."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bigsvm.files.atomic import atomic_write


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """A line for each mapping; the first one names the columns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as temporary, temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
