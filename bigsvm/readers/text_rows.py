"""From blocks of text to batches of rows: what all line-based formats share.

A kernel is a compiled function ``kernel(text, position, line, settings, rows) -> ParseEnd``. From
`position`, the start of line `line`, it parses one row per line into the arrays `rows`, until the
text ends, the arrays are full, or a line is wrong.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bigsvm.core.errors import UserError
from bigsvm.core.messages import quoted
from bigsvm.readers import Batch, batch_rows
from bigsvm.readers.decompress import NEWLINE, line_blocks
from bigsvm.readers.labels import LabelDecoder
from bigsvm.readers.number import convert_deferred

# A problem that any kernel may report; those of a single kernel start at 10.
BAD_NUMBER = 1

NO_LABEL_COLUMN = -1

DEFERRED_CAPACITY = 65_536


class RowArrays(NamedTuple):
    """What a kernel fills: an entry per row, or per deferred number.

    `labels` are the spans of the labels in the text, with their values and states as
    `parse_number` returns them. `deferred` are the spans of numbers for `convert_deferred`, and
    `deferred_at` their flat positions in `x`.
    """

    x: np.ndarray
    labels: np.ndarray
    label_values: np.ndarray
    label_states: np.ndarray
    lines: np.ndarray
    deferred: np.ndarray
    deferred_at: np.ndarray


class ParseEnd(NamedTuple):
    """Where and why a kernel ended.

    `position` and `line` are those of the next line. A problem other than 0 is located by its
    column (from 1) and its bytes in the text, `start` to `stop`.
    """

    position: int
    line: int
    n_rows: int
    n_deferred: int
    problem: int
    column: int
    start: int
    stop: int


@dataclass(frozen=True)
class TextFormat:
    """How the lines of a file become rows of d features.

    Attributes
    ----------
    kernel : callable
    settings : int64 array
        For the kernel.
    d : int
    column_name : callable
        Names a column (from 1) in messages.
    explain : callable
        Explains the kernel's own problems: explain(problem, column, token).
    skip_lines : int
        Lines before the first row.
    label_column : int
        From 0; the column that is not a feature.
    hint : str
        Added to the message about text in a feature.
    """

    kernel: Callable[..., ParseEnd]
    settings: np.ndarray
    d: int
    column_name: Callable[[int], str]
    explain: Callable[[int, int, str], str]
    skip_lines: int = 0
    label_column: int = NO_LABEL_COLUMN
    hint: str = ""


def text_batches(path: Path, form: TextFormat, with_labels: bool) -> Iterator[Batch]:
    """Yield the rows of a text file."""
    d, skip_lines, line = form.d, form.skip_lines, 1
    decoder = LabelDecoder(path)
    deferred = np.empty((max(DEFERRED_CAPACITY, 2 * d), 2), np.int64)
    deferred_at = np.empty(len(deferred), np.int64)
    found = 0
    for text in line_blocks(path):
        position = 0
        while skip_lines and position < len(text):
            position += int((text[position:] == NEWLINE).argmax()) + 1
            line += 1
            skip_lines -= 1
        last_line = line + int(np.count_nonzero(text[position:] == NEWLINE))
        while position < len(text):
            capacity = min(batch_rows(d), last_line - line)
            rows = RowArrays(
                np.zeros((capacity, d)),
                np.zeros((capacity, 2), np.int64),
                np.empty(capacity),
                np.zeros(capacity, np.int8),
                np.empty(capacity, np.int64),
                deferred,
                deferred_at,
            )
            end = form.kernel(text, position, line, form.settings, rows)
            position, line = end.position, end.line
            if end.problem:
                raise _parse_error(path, text, end, form)
            if end.n_deferred:
                values = convert_deferred(text, deferred[: end.n_deferred])
                _reject_overflow(path, values, rows, form)
                rows.x.reshape(-1)[deferred_at[: end.n_deferred]] = values
            if end.n_rows == 0:
                continue
            found += end.n_rows
            x, spans, values, states, lines = (array[: end.n_rows] for array in rows[:5])
            y = decoder.decode(text, spans, values, states, lines) if with_labels else np.empty(0)
            yield Batch(x, y, int(lines[0]), lines=lines)
    if not found:
        raise UserError(f"{path}: no rows in it")


def _parse_error(path: Path, text: np.ndarray, end: ParseEnd, form: TextFormat) -> UserError:
    token = text[end.start : end.stop].tobytes()
    # The kernel has already advanced to the next line.
    where = f"{path}, line {end.line - 1}"
    if end.problem != BAD_NUMBER:
        return UserError(f"{where}: {form.explain(end.problem, end.column, quoted(token))}")
    bare = token.lower().lstrip(b"+-")
    if not token:
        reason = "the value is missing"
    elif bare in (b"nan", b"inf", b"infinity"):
        reason = f"{quoted(token)} is not finite; remove or replace such values"
    else:
        reason = f"{quoted(token)} is not a number{form.hint}"
    return UserError(f"{where}, {form.column_name(end.column)}: {reason}")


def _reject_overflow(path: Path, values: np.ndarray, rows: RowArrays, form: TextFormat) -> None:
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        row, feature = divmod(int(rows.deferred_at[bad[0]]), form.d)
        column = feature + 1 + (feature >= form.label_column != NO_LABEL_COLUMN)
        where = f"{path}, line {rows.lines[row]}, {form.column_name(column)}"
        raise UserError(f"{where}: the number is too large (infinite)")
