"""From blocks of text to batches of rows: what all line-based formats share.

A kernel is a compiled function that parses lines of `text` from `state[POSITION]` on, one row per
line, until the text ends, the arrays are full, or a line is wrong.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from bigsvm.core.errors import UserError
from bigsvm.core.messages import quoted
from bigsvm.readers import Batch, batch_rows
from bigsvm.readers.decompress import NEWLINE, line_blocks
from bigsvm.readers.labels import LabelDecoder
from bigsvm.readers.number import convert_deferred

# The entries of `state`, which a kernel reads and updates. COLUMN, START and STOP locate a problem:
# its column (from 1) and its bytes in the text.
POSITION, LINE, ROWS, DEFERRED_COUNT, PROBLEM, COLUMN, START, STOP = range(8)

# A problem that any kernel may report; those of a single kernel start at 10.
BAD_NUMBER = 1

NO_LABEL_COLUMN = -1

DEFERRED_CAPACITY = 65_536

Explain = Callable[[int, int, str], str]


def text_batches(
    path: Path,
    kernel: Callable[..., None],
    settings: np.ndarray,
    d: int,
    *,
    with_labels: bool,
    column_name: Callable[[int], str],
    explain: Explain,
    skip_lines: int = 0,
    label_column: int = NO_LABEL_COLUMN,
    hint: str = "",
) -> Iterator[Batch]:
    """Yield the rows of the text file `path`, parsed by `kernel`.

    `column_name(column)` names a column in messages; `explain(problem, column, token)` explains the
    kernel's own problems. `label_column` (from 0) is the column that is not a feature; `hint`
    is added to what is said of text in a feature.
    """
    state = np.zeros(8, np.int64)
    state[LINE] = 1
    decoder = LabelDecoder(path)
    deferred = np.empty((max(DEFERRED_CAPACITY, 2 * d), 2), np.int64)
    deferred_at = np.empty(len(deferred), np.int64)
    found = 0
    for text in line_blocks(path):
        state[POSITION] = 0
        while skip_lines and state[POSITION] < len(text):
            state[POSITION] += int((text[state[POSITION] :] == NEWLINE).argmax()) + 1
            state[LINE] += 1
            skip_lines -= 1
        lines_end = state[LINE] + np.count_nonzero(text[state[POSITION] :] == NEWLINE)
        while state[POSITION] < len(text):
            capacity = min(batch_rows(d), int(lines_end - state[LINE]))
            x = np.zeros((capacity, d))
            labels = np.zeros((capacity, 2), np.int64)
            label_values = np.empty(capacity)
            label_states = np.zeros(capacity, np.int8)
            lines = np.empty(capacity, np.int64)
            kernel(
                *(text, state, settings, x, labels, label_values, label_states, lines),
                *(deferred, deferred_at),
            )
            if state[PROBLEM]:
                raise _parse_error(path, text, state, column_name, explain, hint)
            rows, n_deferred = int(state[ROWS]), int(state[DEFERRED_COUNT])
            if n_deferred:
                values = convert_deferred(text, deferred[:n_deferred])
                _reject_overflow(path, values, deferred_at, lines, d, label_column, column_name)
                x.reshape(-1)[deferred_at[:n_deferred]] = values
            if rows == 0:
                continue
            found += rows
            y = np.empty(0)
            if with_labels:
                y = decoder.decode(
                    text, labels[:rows], label_values[:rows], label_states[:rows], lines[:rows]
                )
            yield Batch(x[:rows], y, int(lines[0]), lines=lines[:rows])
    if not found:
        raise UserError(f"{path}: no rows in it")


def _parse_error(
    path: Path,
    text: np.ndarray,
    state: np.ndarray,
    column_name: Callable[[int], str],
    explain: Explain,
    hint: str,
) -> UserError:
    token = text[state[START] : state[STOP]].tobytes()
    column = int(state[COLUMN])
    # The kernel has already advanced to the next line.
    where = f"{path}, line {state[LINE] - 1}"
    if state[PROBLEM] != BAD_NUMBER:
        return UserError(f"{where}: {explain(int(state[PROBLEM]), column, quoted(token))}")
    bare = token.lower().lstrip(b"+-")
    if not token:
        reason = "the value is missing"
    elif bare in (b"nan", b"inf", b"infinity"):
        reason = f"{quoted(token)} is not finite; remove or replace such values"
    else:
        reason = f"{quoted(token)} is not a number{hint}"
    return UserError(f"{where}, {column_name(column)}: {reason}")


def _reject_overflow(
    path: Path,
    values: np.ndarray,
    at: np.ndarray,
    lines: np.ndarray,
    d: int,
    label_column: int,
    column_name: Callable[[int], str],
) -> None:
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        row, feature = divmod(int(at[bad[0]]), d)
        column = feature + 1 + (feature >= label_column != NO_LABEL_COLUMN)
        raise UserError(
            f"{path}, line {lines[row]}, {column_name(column)}: the number is too large (infinite)"
        )
