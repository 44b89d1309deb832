"""Cached columns of a hot set whose patterns change, against the whole kernel matrix."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigsvm.backends.in_memory import InMemoryBackend
from bigsvm.kernels import Kernel
from bigsvm.solvers.hot_columns import HotColumns
from bigsvm.solvers.precomputed import kernel_matrix
from bigsvm.solvers.state import SUPPORT

KERNEL = Kernel("rbf", gamma=0.3)
N = 150
X = np.random.default_rng(0).standard_normal((N, 3)).astype(np.float32)
MATRIX = kernel_matrix(KERNEL, X)


def assert_right(columns: HotColumns, index: np.ndarray) -> None:
    cached = np.flatnonzero(columns.slot[: len(index)] >= 0)
    assert len(np.unique(columns.slot[cached])) == len(cached)
    for place in cached:
        found = columns.columns[columns.slot[place], : len(index)]
        np.testing.assert_array_equal(found, MATRIX[index[place], index])


def turn_to(columns: HotColumns, patterns: np.ndarray) -> np.ndarray:
    index = columns.arrange(patterns)
    np.testing.assert_array_equal(np.sort(index), patterns)
    columns.follow(index, InMemoryBackend(X[index], KERNEL))
    return index


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 20_000, 2**20]))
def test_columns_are_right_however_the_hot_set_changes(seed: int, nbytes: int) -> None:
    rng = np.random.default_rng(seed)
    columns = HotColumns(KERNEL, nbytes, N)
    for _ in range(6):
        index = turn_to(columns, np.flatnonzero(rng.random(N) < rng.uniform(0.1, 1.0)))
        if len(index) < 2:
            continue
        assert_right(columns, index)
        role = np.full(len(index), SUPPORT, np.int8)
        for _ in range(8):
            kept, needed = rng.choice(len(index), 2, replace=False)
            gradient = rng.standard_normal(len(index))
            for place, other in ((kept, needed), (needed, kept)):
                if columns.slot[place] < 0:
                    columns.fetch(place, other, gradient, role)
            assert columns.slot[needed] >= 0 and columns.slot[kept] >= 0
            assert_right(columns, index)


def test_patterns_that_stay_keep_their_columns() -> None:
    columns = HotColumns(KERNEL, 2**20, N)
    index = turn_to(columns, np.arange(0, 100))
    columns.fetch(7, 8, np.zeros(100), np.full(100, SUPPORT, np.int8))
    before = {int(index[place]) for place in np.flatnonzero(columns.slot[:100] >= 0)}
    index = turn_to(columns, np.arange(5, 120))
    after = {int(index[place]) for place in np.flatnonzero(columns.slot[:115] >= 0)}
    assert after == {pattern for pattern in before if pattern >= 5}


def test_the_pattern_nearest_to_the_middle_is_evicted() -> None:
    columns = HotColumns(KERNEL, 1, 40)  # two columns at least
    turn_to(columns, np.arange(40))
    role = np.full(40, SUPPORT, np.int8)
    gradient = np.linspace(-1, 1, 40)
    while (columns._owner < 0).any():
        columns.fetch(int(np.flatnonzero(columns.slot[:40] < 0)[0]), 39, gradient, role)
    cached = np.flatnonzero(columns.slot[:40] >= 0)
    needed = int(np.flatnonzero(columns.slot[:40] < 0)[0])
    middle = (gradient[needed] + gradient[cached[-1]]) / 2
    others = cached[:-1]
    nearest = others[np.argmin(np.abs(gradient[others] - middle))]
    columns.fetch(needed, int(cached[-1]), gradient, role)
    assert columns.slot[nearest] < 0 and columns.slot[cached[-1]] >= 0


def test_patterns_that_stay_out_of_place_are_refused() -> None:
    columns = HotColumns(KERNEL, 2**20, N)
    index = turn_to(columns, np.arange(10))
    with pytest.raises(ValueError, match="keep their places"):
        columns.follow(index[::-1].copy(), InMemoryBackend(X[index[::-1]], KERNEL))
