"""LIBSVM text: a label, then index:value pairs; omitted features are zero."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bigsvm.core.compiled import njit
from bigsvm.core.errors import UserError
from bigsvm.core.messages import SPARSE_ADVICE
from bigsvm.readers import MAX_FEATURES, Batch, ReadOptions
from bigsvm.readers.decompress import line_blocks
from bigsvm.readers.number import DEFERRED, NOT_A_NUMBER, parse_number
from bigsvm.readers.text_rows import BAD_NUMBER, ParseEnd, RowArrays, TextFormat, text_batches

NO_LABEL, NOT_A_PAIR, INDEX_ZERO, NOT_INCREASING, INDEX_TOO_LARGE = 10, 11, 12, 13, 14
SPACE, TAB, RETURN, NEWLINE, HASH, COLON = 32, 9, 13, 10, 35, 58
ZERO = np.int64(48)

# Larger than any valid index, and small enough that ten times as much does not overflow.
HUGE_INDEX = 10**15

# Rows are stored dense. Below this fraction of given values, kernels on sparse rows would be some
# ten times faster (configs/from-a-table.md); small data is stored dense nevertheless.
LEAST_DENSITY = 0.01
MOST_ZEROS_BYTES = 2**30


class LibsvmReader:
    """See `bigsvm.readers`."""

    feature_names: list[str] | None = None

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self.path = path
        self.with_labels = options.with_labels
        if options.label_column is not None:
            raise UserError(f"{path}: LIBSVM text has no label column; leave that option out")
        if options.features is not None and not 1 <= options.features <= MAX_FEATURES:
            raise UserError(f"features must be from 1 to {MAX_FEATURES}, not {options.features}")
        self.d = options.features or _count_features(path)

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order."""
        settings = np.array([self.with_labels], np.int64)
        form = TextFormat(
            parse_libsvm, settings, self.d, lambda column: f"feature {column}", self._explain
        )
        return text_batches(self.path, form, self.with_labels)

    def _explain(self, problem: int, column: int, token: str) -> str:
        if problem == NO_LABEL:
            return f"the row starts with a feature ({token}), not with a label"
        if problem == NOT_A_PAIR:
            return f"{token} is not of the form index:value"
        if problem == INDEX_ZERO:
            return f"feature index 0 ({token}): indices count from 1"
        if problem == NOT_INCREASING:
            return f"feature index {column} ({token}) does not come after the one before it"
        return f"feature index in {token} is above the {self.d} features expected"


def _count_features(path: Path) -> int:
    """The largest index in the file."""
    largest = pairs = 0
    line = 1
    for text in line_blocks(path):
        in_block, lines, at, pairs_in_block = _largest_index(text)
        pairs += pairs_in_block
        if in_block > MAX_FEATURES:
            shown = str(in_block) if in_block < HUGE_INDEX else "far too large"
            raise UserError(
                f"{path}, line {line + at}: feature index {shown}, the limit is {MAX_FEATURES} "
                "(rows are stored dense)"
            )
        largest = max(largest, in_block)
        line += lines
    if largest == 0:
        raise UserError(f"{path}: no index:value pair in it; is it LIBSVM text?")
    values = (line - 1) * largest
    if pairs < LEAST_DENSITY * values and 4 * values > MOST_ZEROS_BYTES:
        raise UserError(
            f"{path}: only {100 * pairs / values:.2g} % of the values of its {line - 1:,} rows of "
            f"{largest:,} features are given, and stored dense they take {4 * values / 2**30:.1f} "
            f"GiB (and twice that meanwhile); {SPARSE_ADVICE}; --features {largest} stores them "
            "dense nevertheless"
        )
    return largest


@njit(cache=True)
def _largest_index(text: np.ndarray) -> tuple[int, int, int, int]:
    """Largest index before a colon, number of lines, the line (from 0) of that index, and pairs."""
    largest = pairs = 0
    largest_line = 0
    line = 0
    index = 0
    all_digits = True
    comment = False
    for i in range(len(text)):
        c = text[i]
        digit = text[i] - ZERO
        if c == NEWLINE:
            line += 1
            comment = False
            index, all_digits = 0, True
        elif comment:
            continue
        elif 0 <= digit <= 9:
            if index < HUGE_INDEX:
                index = index * 10 + digit
        elif c == COLON:
            pairs += 1
            if all_digits and index > largest:
                largest, largest_line = index, line
            all_digits = False
        elif c in (SPACE, TAB, RETURN):
            index, all_digits = 0, True
        elif c == HASH:
            comment = True
        else:
            all_digits = False
    return largest, line, largest_line, pairs


@njit(cache=True)
def parse_libsvm(
    text: np.ndarray, position: int, line: int, settings: np.ndarray, rows: RowArrays
) -> ParseEnd:
    """See text_rows. Settings: whether each row must start with a label. `x` must be zeros."""
    label_needed = settings[0] != 0
    x, labels, deferred = rows.x, rows.labels, rows.deferred
    d = x.shape[1]
    row = 0
    n_deferred = 0
    problem = 0
    index = 0
    start = stop = position
    while position < len(text) and row < len(x) and n_deferred + d <= len(deferred):
        i = position
        end = position
        while text[end] != NEWLINE and text[end] != HASH:
            end += 1
        position = end
        while text[position] != NEWLINE:
            position += 1
        position += 1
        rows.lines[row] = line
        line += 1
        while end > i and _blank(text[end - 1]):
            end -= 1
        while i < end and _blank(text[i]):
            i += 1
        if i == end:
            continue
        previous = 0
        first = True
        while i < end:
            start = i
            colon = -1
            while i < end and not _blank(text[i]):
                if text[i] == COLON and colon < 0:
                    colon = i
                i += 1
            stop = i
            while i < end and _blank(text[i]):
                i += 1
            if first:
                first = False
                if colon < 0:
                    labels[row, 0], labels[row, 1] = start, stop
                    rows.label_values[row], rows.label_states[row] = parse_number(text, start, stop)
                    continue
                if label_needed:
                    problem = NO_LABEL
                    break
            index = 0
            for k in range(start, colon):
                digit = text[k] - ZERO
                if digit < 0 or digit > 9:
                    index = -1
                    break
                if index < HUGE_INDEX:
                    index = index * 10 + digit
            if index < 0 or colon <= start:
                problem = NOT_A_PAIR
            elif index == 0:
                problem = INDEX_ZERO
            elif index > d:
                problem = INDEX_TOO_LARGE
            elif index <= previous:
                problem = NOT_INCREASING
            if problem != 0:
                break
            previous = index
            value, status = parse_number(text, colon + 1, stop)
            if status == NOT_A_NUMBER:
                problem = BAD_NUMBER
                start = colon + 1
                break
            if status == DEFERRED:
                deferred[n_deferred, 0], deferred[n_deferred, 1] = colon + 1, stop
                rows.deferred_at[n_deferred] = row * d + index - 1
                n_deferred += 1
            x[row, index - 1] = value
        if problem != 0:
            break
        row += 1
    return ParseEnd(position, line, row, n_deferred, problem, index, start, stop)


@njit(cache=True)
def _blank(byte: int) -> bool:
    return byte in (SPACE, TAB, RETURN)
