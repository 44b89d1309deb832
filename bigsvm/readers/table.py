"""The parsing kernel for rows of fields separated by a delimiter or by blanks."""

import numpy as np

from bigsvm.core.compiled import njit
from bigsvm.readers.number import DEFERRED, NOT_A_NUMBER, parse_number
from bigsvm.readers.text_rows import BAD_NUMBER, NO_LABEL_COLUMN, ParseEnd, RowArrays

TOO_FEW, TOO_MANY, BAD_QUOTES = 10, 11, 12
SPACE, TAB, RETURN, NEWLINE, QUOTE = 32, 9, 13, 10, 34


@njit(cache=True)
def parse_table(
    text: np.ndarray, position: int, line: int, settings: np.ndarray, rows: RowArrays
) -> ParseEnd:
    """See text_rows. Settings: delimiter (SPACE: any blanks), fields per row, label column."""
    delimiter, fields, label_column = settings[0], settings[1], settings[2]
    by_blanks = delimiter == SPACE
    x, labels, deferred = rows.x, rows.labels, rows.deferred
    d = x.shape[1]
    row = 0
    n_deferred = 0
    problem = 0
    column = 0
    start = stop = position
    while position < len(text) and row < len(x) and n_deferred + d <= len(deferred):
        i = position
        end = position
        while text[end] != NEWLINE:
            end += 1
        position = end + 1
        rows.lines[row] = line
        line += 1
        while end > i and _blank(text[end - 1], delimiter):
            end -= 1
        if end == i:
            continue
        column = 0
        while True:
            while i < end and _blank(text[i], delimiter):
                i += 1
            if by_blanks and i == end:
                break
            if i < end and text[i] == QUOTE:
                i += 1
                start = i
                while i < end and (text[i] != QUOTE or (i + 1 < end and text[i + 1] == QUOTE)):
                    i += 2 if text[i] == QUOTE else 1
                if i >= end:
                    problem, stop = BAD_QUOTES, end
                    break
                stop = i
                i += 1
                while i < end and not by_blanks and _blank(text[i], delimiter):
                    i += 1
                if i < end and text[i] != delimiter and not (by_blanks and text[i] == TAB):
                    problem, stop = BAD_QUOTES, end
                    break
            else:
                start = i
                if by_blanks:
                    while i < end and text[i] != SPACE and text[i] != TAB:
                        i += 1
                    stop = i
                else:
                    while i < end and text[i] != delimiter:
                        i += 1
                    stop = i
                    while stop > start and _blank(text[stop - 1], delimiter):
                        stop -= 1
            column += 1
            if column > fields:
                problem = TOO_MANY
                break
            value, status = parse_number(text, start, stop)
            if column - 1 == label_column:
                labels[row, 0], labels[row, 1] = start, stop
                rows.label_values[row], rows.label_states[row] = value, status
            else:
                feature = column - 1
                if label_column != NO_LABEL_COLUMN and feature > label_column:
                    feature -= 1
                if status == NOT_A_NUMBER:
                    problem = BAD_NUMBER
                    break
                if status == DEFERRED:
                    deferred[n_deferred, 0], deferred[n_deferred, 1] = start, stop
                    rows.deferred_at[n_deferred] = row * d + feature
                    n_deferred += 1
                x[row, feature] = value
            if not by_blanks:
                if i >= end:
                    break
                i += 1
        if problem == 0 and column < fields:
            problem = TOO_FEW
        if problem != 0:
            break
        row += 1
    return ParseEnd(position, line, row, n_deferred, problem, column, start, stop)


@njit(cache=True)
def _blank(byte: int, delimiter: int) -> bool:
    return byte in (SPACE, RETURN) or (byte == TAB and delimiter != TAB)


def explain_table(fields: int, problem: int, column: int, token: str) -> str:
    """Explain why a line is not a row of `fields` fields."""
    if problem == TOO_FEW:
        return f"the row has {column} fields where {fields} are expected"
    if problem == TOO_MANY:
        return f"the row has more than the {fields} fields expected (column {column}: {token})"
    return f"column {column + 1}: a quoted field is not closed on its line ({token})"
