"""Kernel columns in bounded memory: always the right ones, and some of them kept."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigsvm.backends.in_memory import InMemoryBackend
from bigsvm.kernels import Kernel
from bigsvm.solvers.column_cache import ColumnCache, space_for_columns
from bigsvm.solvers.state import IDLE, SUPPORT, WORKING

N = 60
ROWS = np.random.default_rng(0).standard_normal((N, 3)).astype(np.float32)
KERNEL = Kernel("rbf", 0.5)


def cache_of(capacity: int) -> ColumnCache:
    return ColumnCache(InMemoryBackend(ROWS, KERNEL), space_for_columns(4 * N * capacity, N))


def whole_matrix() -> np.ndarray:
    out = np.empty((N, N), np.float32)
    InMemoryBackend(ROWS, KERNEL).columns(ROWS, out, np.arange(N))
    return out


def use(cache: ColumnCache, s: int, v: int, gradient: np.ndarray, role: np.ndarray) -> bool:
    """What a step does; whether both columns were there."""
    there = cache.slot[s] >= 0 and cache.slot[v] >= 0
    if not there:
        cache.fetch(s, v, gradient, role)
    cache.last_used[cache.slot[[s, v]]] = cache.now
    return bool(there)


@given(
    capacity=st.sampled_from([2, 3, 4, 7, 30, N]),
    pairs=st.lists(
        st.lists(st.integers(0, N - 1), min_size=2, max_size=2, unique=True), max_size=60
    ),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_a_slot_holds_the_column_it_is_said_to_hold(capacity, pairs, seed):
    matrix, cache = whole_matrix(), cache_of(capacity)
    rng = np.random.default_rng(seed)
    role = rng.choice(np.array([IDLE, WORKING, SUPPORT], np.int8), N)
    for s, v in pairs:
        use(cache, s, v, rng.standard_normal(N), role)
        assert cache.slot[s] >= 0 and cache.slot[v] >= 0
        held = np.flatnonzero(cache.slot >= 0)
        assert len(np.unique(cache.slot[held])) == len(held) <= capacity
        np.testing.assert_array_equal(cache.columns[cache.slot[held]], matrix[held])


@pytest.mark.parametrize("capacity", [20, 40])
def test_patterns_taken_in_turns_find_some_of_their_columns(capacity):
    """The columns used last would all be gone whenever their turn comes."""
    cache = cache_of(capacity)
    gradient, role = np.ones(N), np.full(N, IDLE, np.int8)  # nothing to guess
    turns = [[use(cache, s, s + 1, gradient, role) for s in range(0, N, 2)] for _ in range(5)]
    for found in turns[1:]:
        assert 2 * sum(found) >= capacity - 4


def test_guesses_leave_slots_to_the_columns_in_use():
    cache = cache_of(40)
    used = list(range(8))
    for s in used[::2]:
        use(cache, s, s + 1, np.ones(N), np.full(N, IDLE, np.int8))
    for s in (8, 10):  # two whole batches would take all
        use(cache, s, s + 1, np.arange(N, dtype=float), np.full(N, SUPPORT, np.int8))
    assert np.count_nonzero(cache.slot >= 0) > 30
    assert all(cache.slot[i] >= 0 for i in used)


def test_a_column_fetched_beside_another_can_still_be_evicted() -> None:
    """A step may then use other nodes: kept for ever, such columns would fill all slots."""
    cache = cache_of(6)
    gradient, role = np.zeros(N), np.full(N, WORKING, np.int8)
    for s in range(1, N):
        if cache.slot[s] < 0:
            cache.fetch(s, s - 1, gradient, role)
        assert cache.slot.max() < 6
        assert (cache.slot >= 0).sum() <= 6
        np.testing.assert_array_equal(cache.columns[cache.slot[s]], whole_matrix()[s])
