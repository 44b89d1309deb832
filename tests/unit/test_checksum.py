"""The checksum of rows: no bit and no order is lost on it, and pieces make up the whole."""

import numpy as np
import pytest

from bigsvm.stores.checksum import Checksum, checksum

ROWS = np.random.default_rng(0).normal(size=(40, 7)).astype(np.float32)


def test_every_flipped_bit_is_noticed() -> None:
    words = ROWS.view(np.uint32)
    for place in range(words.size):
        for bit in range(32):
            flipped = words.copy()
            flipped.flat[place] ^= np.uint32(1 << bit)
            assert checksum(flipped.view(np.float32)) != checksum(ROWS)


@pytest.mark.parametrize("rows", [ROWS, np.eye(40, 32, dtype=np.float32)], ids=["any", "one-hot"])
def test_every_exchange_of_two_rows_is_noticed(rows: np.ndarray) -> None:
    for first in range(32):
        for second in range(first):
            order = np.arange(len(rows))
            order[[first, second]] = second, first
            assert checksum(rows[order]) != checksum(rows)


def test_of_pieces_it_is_the_same() -> None:
    whole = Checksum()
    for start, stop in ((0, 1), (1, 17), (17, 17), (17, 40)):
        whole.add(ROWS[start:stop])
    assert whole.value == checksum(ROWS)
