"""The exact schedule against a plain loop, an independent solver, and the paper's theorem."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigsvm.backends.local import LocalBackend
from bigsvm.core.compiled import available_threads, use_threads
from bigsvm.core.errors import UserError
from bigsvm.kernels import Kernel
from bigsvm.solvers import reference
from bigsvm.solvers.column_cache import space_for_columns
from bigsvm.solvers.nodes import WORTH_THREADS
from bigsvm.solvers.problem import Problem
from bigsvm.solvers.state import IDLE, SUPPORT
from tests.support.problems import (
    Rows,
    absolute,
    exact_schedule,
    kernel_matrix,
    named,
    problem_of,
    q_matrix,
    random_problem,
)

pytestmark = pytest.mark.core

RBF = Kernel("rbf", gamma=0.5)
LINEAR = Kernel("linear")
ALL = 2**30


def solve(problem, memory=ALL, limit=10**6):
    """Run to the end."""
    state = problem.start(0)
    for _ in exact_schedule(problem, space_for_columns(memory, len(problem.y))).run(state):
        if state.iteration >= limit:
            break
    return state


def traced(problem, limit):
    """Run to the end; returns the state and the nodes (joined, forward, away) of every step."""
    state = problem.start(0)
    nodes = []
    before, roles = state.alpha.copy(), state.role.copy()
    for _ in exact_schedule(problem, space_for_columns(ALL, len(problem.y))).run(state):
        change = state.alpha - before
        new = np.flatnonzero((roles == IDLE) & (state.role != IDLE))
        joined = int(new[0]) if len(new) else -1
        nodes.append((joined, int(np.argmax(change)), int(np.argmin(change))))
        before, roles = state.alpha.copy(), state.role.copy()
        if state.iteration >= limit:
            break
    return state, nodes


@pytest.mark.parametrize("algorithm", ["fw", "mfw"])
@pytest.mark.parametrize("kernel", [RBF, LINEAR], ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("name", ["heart", "ionosphere", "sonar"])
def test_every_node_is_that_of_a_plain_numpy_loop(name, kernel, algorithm, data_dir):
    x, y = named(name, data_dir)
    plain = reference.train(q_matrix(kernel, x, y, 1.0), algorithm, 1e-5, max_iterations=20_000)
    problem = problem_of(x, y, kernel, 1.0, algorithm)
    state, nodes = traced(problem, limit=20_000)
    assert nodes == list(zip(plain.joined, plain.forward, plain.away, strict=True))
    assert len(nodes) > 100
    assert np.allclose(state.alpha, plain.alpha, rtol=1e-9, atol=1e-14)
    assert np.allclose(state.gradient, plain.gradient, rtol=1e-9, atol=1e-12)
    assert np.array_equal(state.role != IDLE, plain.working)


@pytest.mark.parametrize("C", [0.1, 1.0, 100.0])
@pytest.mark.parametrize("kernel", [RBF, LINEAR], ids=lambda kernel: kernel.name)
def test_fw_reaches_the_optimum_of_an_independent_solver(kernel, C, data_dir):
    from sklearn.svm import OneClassSVM

    x, y = named("heart", data_dir)
    n = len(y)
    q = q_matrix(kernel, x, y, C)
    other = OneClassSVM(kernel="precomputed", nu=1 / n, tol=1e-10).fit(q)
    alpha = np.zeros(n)
    alpha[other.support_] = other.dual_coef_[0]
    alpha /= alpha.sum()
    state = solve(problem_of(x, y, kernel, C, "fw", tolerance=1e-9))
    assert state.objective == pytest.approx(0.5 * alpha @ q @ alpha, rel=1e-6)


@pytest.mark.parametrize("name", ["heart", "ionosphere"])
def test_mfw_is_the_svm_of_its_own_working_set(name, data_dir):
    x, y = named(name, data_dir)
    state = solve(problem_of(x, y, RBF, 10.0, "mfw", tolerance=1e-8))
    working = np.flatnonzero(state.role != IDLE)
    assert len(working) < len(y)
    sub = solve(problem_of(x[working], y[working], RBF, 10.0, "fw", tolerance=1e-8))
    assert state.objective == pytest.approx(sub.objective, rel=1e-6)
    assert np.allclose(state.alpha[working], sub.alpha, atol=1e-6)
    assert (state.gradient[state.role == IDLE] >= 0).all()  # no idle pattern is misclassified


@pytest.mark.parametrize("memory", [ALL, 4 * 208 * 60, 4 * 208 * 15, 1])
@pytest.mark.parametrize("algorithm", ["fw", "mfw"])
def test_the_cache_changes_no_bit(memory, algorithm, data_dir):
    x, y = named("sonar", data_dir)
    expected = solve(problem_of(x, y, RBF, 10.0, algorithm))
    state = solve(problem_of(x, y, RBF, 10.0, algorithm), memory=memory)
    assert state.iteration == expected.iteration
    assert np.array_equal(state.alpha, expected.alpha)
    assert np.array_equal(state.gradient, expected.gradient)


@pytest.mark.parametrize("chunk_rows", [7, 64, 1000])
@pytest.mark.parametrize("resident", [0, 2000, 2**30])
def test_chunks_and_streaming_change_no_bit(chunk_rows, resident):
    x, y = random_problem(np.random.default_rng(0), 300, 5)
    expected = solve(problem_of(x, y, RBF, 10.0))
    rows = Rows(x, chunk_rows)
    backend = LocalBackend(rows, RBF, resident)
    state = solve(Problem(backend, y, 10.0, "mfw", absolute(1e-5)))
    assert np.array_equal(state.alpha, expected.alpha)
    assert np.array_equal(state.gradient, expected.gradient)
    reads = rows.reads
    backend.matvec(x[:3], np.ones(3))
    kept = min(resident // (4 * rows.chunk_rows * 5), -(-300 // chunk_rows))
    assert rows.reads - reads == -(-300 // chunk_rows) - kept


def test_threads_change_no_bit():
    x, y = random_problem(np.random.default_rng(2), WORTH_THREADS + 1001, 2)
    states = []
    for count in (1, available_threads()):
        with use_threads(count):
            states.append(solve(problem_of(x, y, RBF, threads=count), limit=300))
    assert np.array_equal(states[0].alpha, states[1].alpha)
    assert np.array_equal(states[0].gradient, states[1].gradient)


def test_bursts_and_pauses_change_no_bit():
    x, y = random_problem(np.random.default_rng(3), 400, 3)
    expected = solve(problem_of(x, y, RBF, 10.0))
    problem = problem_of(x, y, RBF, 10.0)
    state, seen = problem.start(0), []
    schedule = exact_schedule(problem, space_for_columns(ALL, 400))
    for _ in schedule.run(state, lambda iteration: (iteration // 50 + 1) * 50):
        seen.append(state.iteration)
    assert set(range(50, state.iteration, 50)) <= set(seen)
    assert len(seen) < state.iteration
    assert np.array_equal(state.alpha, expected.alpha)
    assert np.array_equal(state.gradient, expected.gradient)


def test_columns_are_fetched_in_batches():
    x, y = random_problem(np.random.default_rng(1), 2000, 5)
    problem = problem_of(x, y, RBF, 10.0)
    calls = []
    serve = problem.backend.columns
    problem.backend.columns = lambda rows, *rest: (calls.append(len(rows)), serve(rows, *rest))
    state = solve(problem)
    assert sum(calls) < 2.0 * state.n_working
    assert len(calls) < state.n_working / 3


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(2, 60),
    d=st.integers(1, 6),
    C=st.sampled_from([1e-3, 1.0, 1e3]),
    algorithm=st.sampled_from(["fw", "mfw"]),
    kernel=st.sampled_from([RBF, LINEAR, Kernel("laplacian", 1.0), Kernel("poly", 1.0, 1.0, 2)]),
    duplicates=st.booleans(),
)
def test_random_problems(seed, n, d, C, algorithm, kernel, duplicates):
    x, y = random_problem(np.random.default_rng(seed), n, d)
    if duplicates:
        x[n // 2 :] = x[: n - n // 2]
    problem = problem_of(x, y, kernel, C, algorithm, tolerance=1e-4)
    state = solve(problem, limit=3000)
    assert state.alpha.min() >= 0
    assert state.alpha.sum() == pytest.approx(1, abs=1e-12)
    assert np.array_equal(state.alpha > 0, state.role == SUPPORT)
    true = problem.gradient(state.alpha)
    largest = np.abs(kernel_matrix(kernel, x)).max()
    assert np.allclose(state.gradient, true, rtol=0, atol=1e-6 * largest + 1e-12 / C)
    if state.iteration < 3000:
        assert state.gap <= 1e-4
        assert (state.gradient[state.role == IDLE] >= 0).all()


def test_numbers_beyond_float32_end_in_a_clear_line():
    x = np.array([[1e30], [-2e30], [3e30]], np.float32)
    y = np.array([1, -1, 1], np.int8)
    with pytest.raises(UserError, match="scale the data"):
        solve(problem_of(x, y, LINEAR))
