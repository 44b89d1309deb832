"""The block schedule against the exact one: same optimum, same theorem, pauses without a trace."""

from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigsvm.backends.local import LocalBackend
from bigsvm.core.stop_rule import StopRule
from bigsvm.kernels import Kernel
from bigsvm.solvers.column_cache import space_for_columns
from bigsvm.solvers.order import Difference, k_smallest
from bigsvm.solvers.problem import Problem
from bigsvm.solvers.state import IDLE, SUPPORT, UNSEEN
from tests.support.problems import (
    Rows,
    absolute,
    block_schedule,
    exact_schedule,
    named,
    problem_of,
    random_problem,
)

RBF = Kernel("rbf", gamma=0.5)
MEMORY = 2**24


def never(iteration):
    return 2**62


def often(iteration):
    return (iteration // 97 + 1) * 97


def solve_exactly(problem):
    state = problem.start(0)
    for _ in exact_schedule(problem, space_for_columns(MEMORY, len(problem.y))).run(state):
        pass
    return state


def solve(problem, hot_set, kernel=RBF, memory=MEMORY, pause=never):
    """Run to the end; returns the final state and what was yielded within subproblems."""
    state = problem.start(0)
    paused = []
    for now in block_schedule(problem, kernel, memory, hot_set).run(state, pause):
        if now is not state:
            paused.append(now)
        assert state.passes < 2000
    return state, paused


def quadrants(n):
    """A problem of which most patterns are far from the boundary, with a few wrong labels."""
    generator = np.random.default_rng(0)
    x = generator.uniform(-1, 1, (n, 3)).astype(np.float32)
    sign = np.sin(2 * x[:, 0]) * np.sin(2 * x[:, 1]) + 0.05 * generator.normal(size=n) > 0
    return x, np.where(sign ^ (generator.random(n) < 0.05), 1, -1).astype(np.int8)


@pytest.mark.core
@pytest.mark.parametrize("C", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("kernel", [RBF, Kernel("linear")], ids=lambda kernel: kernel.name)
def test_fw_reaches_the_same_optimum_as_exact(kernel, C):
    x, y = random_problem(np.random.default_rng(0), 600, 4)
    tolerance = 1e-5 * max(1.0, 1 / C)
    problem = problem_of(x, y, kernel, C, "fw", tolerance=tolerance)
    exact = solve_exactly(problem)
    state, _ = solve(problem, 96, kernel)
    assert state.gap <= tolerance
    assert exact.objective - tolerance <= state.objective <= 1.02 * exact.objective
    assert state.passes <= 40
    assert state.iteration <= 5 * exact.iteration


@pytest.mark.core
@pytest.mark.parametrize("name", ["ionosphere", "heart", "german"])
def test_mfw_is_the_svm_of_its_own_working_set(name, data_dir):
    x, y = named(name, data_dir)
    state, _ = solve(problem_of(x, y, RBF, 10.0, "mfw", tolerance=1e-8), 12)
    working = np.flatnonzero(state.role != IDLE)
    sub = solve_exactly(problem_of(x[working], y[working], RBF, 10.0, "fw", tolerance=1e-8))
    assert state.objective == pytest.approx(sub.objective, rel=1e-6)
    assert np.allclose(state.alpha[working], sub.alpha, atol=1e-6)
    assert (state.gradient[state.role == IDLE] >= 0).all()
    assert state.passes > 1


def test_no_pass_is_needed_where_a_hot_set_holds_all():
    x, y = random_problem(np.random.default_rng(1), 300, 3)
    problem = problem_of(x, y, RBF, 10.0, tolerance=1e-9)
    state, _ = solve(problem, 300)
    assert state.passes == 0
    working = np.flatnonzero(state.role != IDLE)
    sub = solve_exactly(problem_of(x[working], y[working], RBF, 10.0, "fw", tolerance=1e-9))
    assert state.objective == pytest.approx(sub.objective, rel=1e-6)


@pytest.mark.core
def test_pausing_changes_no_bit_and_shows_the_iterate_of_that_iteration():
    x, y = random_problem(np.random.default_rng(2), 1200, 3)
    problem = problem_of(x, y, RBF, 10.0)
    alone, _ = solve(problem, 32)
    state, paused = solve(problem, 32, pause=lambda iteration: (iteration // 7 + 1) * 7)
    assert np.array_equal(state.alpha, alone.alpha)
    assert np.array_equal(state.gradient, alone.gradient)
    assert [now.iteration for now in paused] == list(range(7, state.iteration + 1, 7))
    for now in paused[:: len(paused) // 10]:
        assert now.alpha.sum() == pytest.approx(1, abs=1e-12)
        assert np.array_equal(now.alpha > 0, now.role == SUPPORT)


@pytest.mark.parametrize("pause", [never, often])
def test_a_copy_of_the_state_continues_to_the_same_bits(pause):
    """Another process every few yields: after a pass, or in the middle of a hot set."""
    x, y = random_problem(np.random.default_rng(3), 600, 3)
    problem = problem_of(x, y, RBF, 10.0)
    alone, _ = solve(problem, 16)
    state, ended, processes = problem.start(0), False, 0
    while not ended:
        processes += 1
        ended = True
        begun = state.passes
        for now in block_schedule(problem, RBF, MEMORY, 16).run(state, pause):
            if state.passes > begun and (now is not state) == (pause is often):
                ended = False
                break
        state = deepcopy(state)
    assert processes > 5
    assert np.array_equal(state.alpha, alone.alpha)
    assert state.passes == alone.passes


@pytest.mark.parametrize("memory", [1, 4 * 100 * 20, MEMORY])
@pytest.mark.parametrize(("chunk_rows", "resident"), [(64, 0), (100, 2000), (1000, 2**30)])
def test_memory_and_chunks_change_no_bit(memory, chunk_rows, resident):
    x, y = random_problem(np.random.default_rng(4), 250, 3)
    expected, _ = solve(problem_of(x, y, RBF, 10.0), 16)
    backend = LocalBackend(Rows(x, chunk_rows), RBF, resident)
    state, _ = solve(Problem(backend, y, 10.0, "mfw", absolute(1e-5)), 16, memory=memory)
    assert np.array_equal(state.alpha, expected.alpha)
    assert np.array_equal(state.gradient, expected.gradient)


def test_far_fewer_passes_than_iterations():
    x, y = random_problem(np.random.default_rng(5), 4000, 4)
    problem = problem_of(x, y, RBF, 1.0)
    exact = solve_exactly(problem)
    state, _ = solve(problem, 1024)
    assert state.passes < state.iteration / 100
    assert state.iteration <= 2 * exact.iteration
    assert state.n_support <= 1.1 * exact.n_support


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(30, 200),
    C=st.sampled_from([1e-3, 1.0, 1e4]),
    rare=st.sampled_from([0.5, 0.02]),
    algorithm=st.sampled_from(["fw", "mfw"]),
)
def test_random_problems_never_stall(seed, n, C, rare, algorithm):
    rng = np.random.default_rng(seed)
    x, y = random_problem(rng, n, 3)
    y[2:] = np.where(rng.random(n - 2) < rare, 1, -1)
    problem = problem_of(x, y, RBF, C, algorithm, tolerance=1e-4)
    exact = solve_exactly(problem)
    state, _ = solve(problem, 24)
    assert state.alpha.min() >= 0
    assert state.alpha.sum() == pytest.approx(1, abs=1e-12)
    assert np.allclose(state.gradient, problem.gradient(state.alpha), atol=1e-9 * max(1, 1 / C))
    assert state.gap <= 1e-4
    assert state.passes <= 40
    assert state.iteration <= 8 * exact.iteration + 200


@pytest.mark.parametrize("seed", range(5))
def test_the_smallest_hot_sets_come_to_an_end(seed):
    """In one of two or three patterns, all weight may come to lie on one of them."""
    x, y = random_problem(np.random.default_rng(seed), 60, 2)
    state, _ = solve(problem_of(x, y, RBF, 10.0, tolerance=1e-4), 1)
    assert state.gap <= 1e-4
    assert (state.gradient[state.role == IDLE] >= 0).all()


def test_there_is_a_moment_to_interrupt_within_a_subproblem():
    x, y = random_problem(np.random.default_rng(6), 1500, 3)
    problem = problem_of(x, y, RBF, 10.0)
    state = problem.start(0)
    passes = [state.passes for _ in block_schedule(problem, RBF, MEMORY, 200).run(state)]
    assert max(passes.count(k) for k in set(passes)) > 2


@pytest.mark.core
def test_k_smallest_takes_the_lower_index_among_equals():
    values = np.array([3.0, 1.0, 2.0, 1.0, 1.0, 0.5])
    eligible = np.array([True, True, True, True, True, False])
    assert sorted(k_smallest(values, eligible, 2)) == [1, 3]
    assert sorted(k_smallest(values, eligible, 4)) == [1, 2, 3, 4]
    assert sorted(k_smallest(values, eligible, 9)) == [0, 1, 2, 3, 4]
    fallen = Difference(values, np.array([9.0, 0.0, 0.0, 0.0, 0.0, 9.0]))
    assert sorted(k_smallest(fallen, eligible, 1)) == [0]


@pytest.mark.parametrize("C", [0.1, 10.0])
def test_no_more_patterns_join_than_in_the_exact_schedule(C):
    x, y = quadrants(2000)
    kernel = Kernel("rbf", 4.0)
    problem = problem_of(x, y, kernel, C, "mfw", tolerance=1e-5 * max(1.0, 1 / C))
    exact = solve_exactly(problem)
    state, _ = solve(problem, 512, kernel)
    assert state.passes <= 40
    assert state.n_working <= 1.1 * exact.n_working


@pytest.mark.core
def test_patterns_set_aside_are_back_before_the_end():
    """Fewer kernel values than passes over all patterns would take, and the end is verified."""
    x, y = quadrants(4000)
    problem = problem_of(x, y, RBF, 10.0, tolerance=1e-6)
    state, n_aside = problem.start(0), 0
    for _ in block_schedule(problem, RBF, MEMORY, 512).run(state):
        if state.sample == len(y):
            n_aside = max(n_aside, np.count_nonzero(state.role == UNSEEN))
    assert n_aside >= len(y) / 2
    assert state.sample == 0 and not np.any(state.role == UNSEEN)
    assert state.drift is not None  # the last pass was from scratch: no other has to follow
    assert np.array_equal(state.gradient, problem.gradient(state.alpha))


def test_patterns_that_fall_further_than_expected_join_after_all(monkeypatch):
    """All but the nearest are set aside, far too many: a pass over all finds them."""
    x, y = quadrants(1000)
    problem = problem_of(x, y, RBF, 10.0, tolerance=1e-5)
    monkeypatch.setattr("bigsvm.solvers.block.usual_fall", lambda *_: 0.0)
    state, _ = solve(problem, 256)
    assert (state.gradient[state.role == IDLE] >= 0).all()
    assert state.gap <= 1e-5 and state.sample == 0
    assert state.passes <= 80


def overlapping(n):
    """Two Gaussians in five dimensions, their centres one deviation apart."""
    generator = np.random.default_rng(0)
    y = np.where(generator.uniform(size=n) < 0.5, 1, -1).astype(np.int8)
    centres = generator.normal(size=(2, 5))
    centres /= np.linalg.norm(centres[0] - centres[1])
    return (generator.normal(size=(n, 5)) + centres[(y + 1) // 2]).astype(np.float32), y


def isolated(n):
    """Rows of a Cauchy distribution: many are far from all others."""
    x = np.random.default_rng(0).standard_cauchy((n, 10)).astype(np.float32)
    return x, np.where(x.sum(axis=1) > 0, 1, -1).astype(np.int8)


@pytest.mark.core
@pytest.mark.parametrize(("rows", "C"), [(overlapping, 0.1), (isolated, 10.0)])
def test_patterns_do_not_wait_in_turn(rows, C):
    """Solved without those near them, the patterns that wait are followed by others, and again.

    That took 42 and 296 passes, each of which let a handful of patterns join.
    """
    problem = problem_of(*rows(3000), RBF, C)
    problem.stop_rule = StopRule(relative=0.01)
    state, _ = solve(problem, 800)
    assert state.passes <= 20
    assert state.n_support <= 1.1 * solve_exactly(problem).n_support
