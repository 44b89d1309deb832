"""Parsing numbers as float64, rounded exactly like Python's float(), in compiled code."""

import re

import numpy as np

from bigsvm.core.compiled import njit

EXACT, DEFERRED, NOT_A_NUMBER = 0, 1, 2
PLUS, MINUS, POINT, SMALL_E, LARGE_E = b"+-.eE"
# An int64, so that the difference of a byte and it can be negative.
ZERO = np.int64(48)

# These powers of ten and all integers up to 2**53 are exact in float64, and one multiplication or
# division of exact numbers is rounded correctly. Other numbers are deferred to `convert_deferred`.
EXACT_POWERS = np.array([float(10**k) for k in range(23)])
LARGEST_EXACT = 2**53

_GRAMMAR = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def as_number(text: str) -> float | None:
    """The number that `text` denotes; None if it is not a finite number."""
    if _GRAMMAR.fullmatch(text) is None:
        return None
    value = float(text)
    return value if abs(value) < float("inf") else None


@njit(cache=True)
def parse_number(text: np.ndarray, start: int, stop: int) -> tuple[float, int]:
    """Value of text[start:stop], and EXACT, DEFERRED (see `convert_deferred`) or NOT_A_NUMBER."""
    i = start
    negative = False
    if i < stop and (text[i] == PLUS or text[i] == MINUS):
        negative = text[i] == MINUS
        i += 1
    mantissa = 0
    exponent = 0
    digits = 0
    too_long = False
    after_point = False
    while i < stop:
        digit = text[i] - ZERO
        if 0 <= digit <= 9:
            digits += 1
            if mantissa > LARGEST_EXACT:
                too_long = True
            else:
                mantissa = mantissa * 10 + digit
                if after_point:
                    exponent -= 1
        elif text[i] == POINT and not after_point:
            after_point = True
        else:
            break
        i += 1
    if digits == 0:
        return 0.0, NOT_A_NUMBER
    if i < stop:
        if text[i] != SMALL_E and text[i] != LARGE_E:
            return 0.0, NOT_A_NUMBER
        i += 1
        sign = 1
        if i < stop and (text[i] == PLUS or text[i] == MINUS):
            sign = -1 if text[i] == MINUS else 1
            i += 1
        if i == stop:
            return 0.0, NOT_A_NUMBER
        power = 0
        while i < stop:
            digit = text[i] - ZERO
            if digit < 0 or digit > 9:
                return 0.0, NOT_A_NUMBER
            if power < 100_000:
                power = power * 10 + digit
            i += 1
        exponent += sign * power
    if too_long or mantissa > LARGEST_EXACT or exponent < -22 or exponent > 22:
        return 0.0, DEFERRED
    value = np.float64(mantissa)
    if exponent < 0:
        value /= EXACT_POWERS[-exponent]
    else:
        value *= EXACT_POWERS[exponent]
    return (-value if negative else value), EXACT


@njit(cache=True)
def _joined(text: np.ndarray, spans: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The spans concatenated, and where each begins; a leading plus is left out."""
    offsets = np.zeros(len(spans) + 1, np.int32)
    total = 0
    for k in range(len(spans)):
        start = spans[k, 0] + (1 if text[spans[k, 0]] == PLUS else 0)
        total += spans[k, 1] - start
        offsets[k + 1] = total
    out = np.empty(total, np.uint8)
    for k in range(len(spans)):
        start = spans[k, 1] - (offsets[k + 1] - offsets[k])
        for i in range(offsets[k], offsets[k + 1]):
            out[i] = text[start + i - offsets[k]]
    return out, offsets


def convert_deferred(text: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """The values of the spans (k, 2) that `parse_number` deferred; too large ones become inf."""
    import pyarrow as pa

    joined, offsets = _joined(text, spans)
    tokens = pa.StringArray.from_buffers(
        len(spans), pa.py_buffer(offsets.data), pa.py_buffer(joined.data)
    )
    try:
        # Arrow rounds correctly too, but rejects numbers that overflow or underflow.
        return tokens.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        return np.array([float(token) for token in tokens.to_pylist()])
