"""Numbers in text, rounded as Python does."""

import math
import re
from pathlib import Path

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bigsvm.readers.number import DEFERRED, EXACT, NOT_A_NUMBER, convert_deferred, parse_number
from tests.support.reading import read, write


def number(token: str) -> float | None:
    text = np.frombuffer(token.encode(), np.uint8)
    value, state = parse_number(text, 0, len(text))
    if state == DEFERRED:
        return float(convert_deferred(text, np.array([[0, len(text)]]))[0])
    return value if state == EXACT else None


def same(a: float | None, b: float) -> bool:
    return a is not None and a == b and math.copysign(1, a) == math.copysign(1, b)


@given(st.from_regex(r"\A[+-]?([0-9]{1,25}\.?[0-9]{0,25}|\.[0-9]{1,25})([eE][+-]?[0-9]{1,3})?\Z"))
@example("9007199254740993")
@example("9007199254740992e22")
@example("-0.0")
@example("1e400")
@example("1e-400")
@example("5e-324")
@example("2.4703282292062327e-324")
@example("1.7976931348623159e308")
@example("+8.98846567431158e307")
@example("0." + "0" * 400 + "1e401")
@example("1" + "0" * 330 + "e-330")
@example("1e99999999999999999999")
@example("0e99999999999999999999")
@settings(deadline=None, max_examples=200)
def test_numbers_are_rounded_as_python_does(token: str) -> None:
    assert same(number(token), float(token))


def test_numbers_at_the_edge_of_the_fast_path() -> None:
    rng = np.random.default_rng(0)
    for bits in (51, 53, 54, 55, 60):
        for mantissa in rng.integers(2 ** (bits - 1), 2**bits, size=20).tolist():
            for exponent in (*range(-26, -18), -1, 0, 1, *range(18, 27)):
                token = f"{mantissa}e{exponent}"
                assert same(number(token), float(token)), token
    for small in (1, 7, 123):
        for exponent in range(-30, 31):
            assert same(number(f"{small}e{exponent}"), float(f"{small}e{exponent}"))


@given(st.floats(allow_nan=False, allow_infinity=False))
@settings(deadline=None, max_examples=200)
def test_every_float_survives_being_written(value: float) -> None:
    for token in (repr(value), f"{value:.17e}", f"{value:+.25g}"):
        assert same(number(token), value)


@given(st.text(alphabet="0123456789+-.eE_xnaif ", max_size=8))
@settings(deadline=None, max_examples=200)
def test_only_plain_decimals_are_numbers(token: str) -> None:
    plain = re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", token)
    assert (number(token) is not None) == bool(plain)


def test_many_long_numbers_in_one_file(tmp_path: Path) -> None:
    # More digits than the fast path takes, and more numbers than its list of doubtful ones holds.
    values = np.random.default_rng(0).normal(size=(20_000, 5)) * 1e-30
    path = write(tmp_path, "".join(",".join(map(repr, row)) + ",1\n" for row in values.tolist()))
    x, _ = read(path)
    assert (x == values).all()


def test_not_a_number_is_the_third_state() -> None:
    # The tests above tell numbers from the rest by None; this is what None stands for.
    assert parse_number(np.frombuffer(b"abc", np.uint8), 0, 3)[1] == NOT_A_NUMBER
