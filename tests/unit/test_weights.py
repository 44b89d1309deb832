"""Weighted problems against independent solvers, and against plain ones that must be the same."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigsvm.backends.local import LocalBackend
from bigsvm.core.errors import UserError
from bigsvm.kernels import Kernel
from bigsvm.solvers import reference
from bigsvm.solvers.column_cache import space_for_columns
from bigsvm.solvers.problem import Problem
from bigsvm.solvers.reweight import FUNCTIONS, Reweighting
from bigsvm.solvers.state import EXCLUDED, IDLE, SUPPORT
from tests.support.problems import (
    Rows,
    absolute,
    block_schedule,
    exact_schedule,
    kernel_matrix,
    named,
    random_problem,
)

RBF = Kernel("rbf", gamma=0.5)
MEMORY = 2**26
SCHEDULES = ("exact", "block")


def problem_of(x, y, C=1.0, algorithm="fw", tolerance=1e-5, kernel=RBF, **weights):
    backend = LocalBackend(Rows(x), kernel, 2**30)
    return Problem(backend, y, C, algorithm, absolute(tolerance), **weights)


def solve(problem, schedule="exact", state=None, kernel=RBF):
    state = problem.start(0) if state is None else state
    if schedule == "exact":
        steps = exact_schedule(problem, space_for_columns(MEMORY, len(problem.y)))
    else:
        steps = block_schedule(problem, kernel, MEMORY, 256)
    for _ in steps.run(state):
        assert state.iteration < 10**6
    return state


def q_matrix(x, y, C, kernel=RBF, intercept=0.0):
    """Q of the coefficients a, whatever their weights."""
    diagonal = np.diag(np.broadcast_to(1 / np.asarray(C, float), len(y)))
    return np.outer(y, y) * (kernel_matrix(kernel, x) + intercept) + diagonal


def by_libsvm(q):
    """The minimum of 1/2 b'Qb over the simplex, by the one-class SVM of LIBSVM."""
    from sklearn.svm import OneClassSVM

    fitted = OneClassSVM(kernel="precomputed", nu=1 / len(q), tol=1e-10).fit(q)
    b = np.zeros(len(q))
    b[fitted.support_] = fitted.dual_coef_[0]
    return b / b.sum()


def coefficients(problem, state):
    """a, the coefficients of the weighted problem."""
    return problem.dual_coef(np.arange(len(problem.y)), state.alpha) * problem.y


def assert_same_bits(state, other):
    assert np.array_equal(state.alpha, other.alpha)
    assert np.array_equal(state.gradient, other.gradient)
    assert np.array_equal(state.role, other.role)
    assert (state.iteration, state.passes, state.gap) == (other.iteration, other.passes, other.gap)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("C", [0.1, 10.0])
def test_the_weighted_dual_has_the_optimum_of_libsvm(schedule, C, data_dir):
    x, y = named("heart", data_dir)
    t = np.random.default_rng(0).uniform(0.2, 3.0, len(y))
    q = q_matrix(x, y, C)
    b = by_libsvm(q / np.outer(t, t))
    problem = problem_of(x, y, C, tolerance=1e-8, margin=t)
    state = solve(problem, schedule)
    a = coefficients(problem, state)
    assert np.dot(t, a) == pytest.approx(1, abs=1e-12)
    assert state.objective == pytest.approx(0.5 * a @ q @ a, rel=1e-9)
    assert state.objective == pytest.approx(0.5 * (b / t) @ q @ (b / t), rel=1e-6)
    assert np.allclose(a, b / t, atol=1e-5)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("algorithm", ["fw", "mfw"])
def test_a_C_of_its_own_for_each_pattern(schedule, algorithm, data_dir):
    x, y = named("ionosphere", data_dir)
    C = 10.0 * np.random.default_rng(1).choice([0.1, 1.0, 5.0], len(y))
    state = solve(problem_of(x, y, C, algorithm, tolerance=1e-8), schedule)
    working = state.role > IDLE
    assert working.all() == (algorithm == "fw")
    q = q_matrix(x, y, C)[np.ix_(working, working)]
    b = by_libsvm(q)
    assert state.objective == pytest.approx(0.5 * b @ q @ b, rel=1e-6)
    assert np.allclose(state.alpha[working], b, atol=1e-5)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_an_intercept_is_a_kernel_plus_a_constant(schedule, data_dir):
    x, y = named("heart", data_dir)
    t = np.random.default_rng(2).uniform(0.5, 2.0, len(y))
    q = q_matrix(x, y, 1.0, intercept=0.7)
    b = by_libsvm(q / np.outer(t, t))
    problem = problem_of(x, y, 1.0, tolerance=1e-8, margin=t, intercept=0.7)
    state = solve(problem, schedule)
    assert state.objective == pytest.approx(0.5 * (b / t) @ q @ (b / t), rel=1e-6)
    assert np.allclose(state.gradient, (q @ coefficients(problem, state)) / t, atol=1e-12)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_linear_kernel_with_an_intercept_is_the_polynomial_one_of_degree_1(schedule, data_dir):
    x, y = named("heart", data_dir)
    linear, poly = Kernel("linear"), Kernel("poly", 1.0, 2.0, 1)
    ours = solve(problem_of(x, y, 1.0, "mfw", 1e-6, linear, intercept=2.0), schedule, kernel=linear)
    other = solve(problem_of(x, y, 1.0, "mfw", 1e-6, poly), schedule, kernel=poly)
    # Other roundings, other paths: `mfw` ends at the SVM of another working set.
    assert ours.objective == pytest.approx(other.objective, rel=0.1)
    without = solve(problem_of(x, y, 1.0, "mfw", 1e-6, linear), schedule, kernel=linear)
    assert without.objective < 0.99 * ours.objective


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("algorithm", ["fw", "mfw"])
@pytest.mark.parametrize("weights", ["margin", "C"])
def test_weights_of_1_change_no_bit(schedule, algorithm, weights):
    x, y = random_problem(np.random.default_rng(3), 700, 3)
    plain = solve(problem_of(x, y, 10.0, algorithm), schedule)
    given = {"margin": np.ones(700)} if weights == "margin" else {"C": np.full(700, 10.0)}
    problem = problem_of(x, y, **({"C": 10.0} | given), algorithm=algorithm)
    assert_same_bits(solve(problem, schedule), plain)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("algorithm", ["fw", "mfw"])
@pytest.mark.parametrize("weights", ["margin", "C"])
def test_patterns_of_weight_0_are_as_if_not_there(schedule, algorithm, weights):
    x, y = random_problem(np.random.default_rng(4), 500, 3)
    kept = np.random.default_rng(5).random(500) < 0.6
    kept[0] = False  # where the start would be
    zeros = kept.astype(float)
    given = {"margin": zeros} if weights == "margin" else {"C": 10 * zeros}
    problem = problem_of(x, y, **({"C": 10.0} | given), algorithm=algorithm)
    state = solve(problem, schedule)
    assert (state.role[~kept] == EXCLUDED).all()
    assert not state.gradient[~kept].any()
    alone = solve(problem_of(x[kept], y[kept], 10.0, algorithm), schedule)
    if schedule == "exact":
        assert np.array_equal(state.alpha[kept], alone.alpha)
        assert state.iteration == alone.iteration
    else:  # it takes another sample of more patterns
        assert state.objective == pytest.approx(alone.objective, rel=5e-2)


def test_a_pattern_m_times_is_a_pattern_of_m_times_the_C(data_dir):
    x, y = named("heart", data_dir)
    times = np.random.default_rng(6).integers(1, 5, len(y))
    state = solve(problem_of(x, y, 2.0 * times, tolerance=1e-8))
    repeated = solve(problem_of(np.repeat(x, times, 0), np.repeat(y, times), 2.0, tolerance=1e-8))
    together = np.add.reduceat(repeated.alpha, np.cumsum(times) - times)
    assert state.objective == pytest.approx(repeated.objective, rel=1e-6)
    assert np.allclose(state.alpha, together, atol=1e-5)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", ["heart", "german"])
def test_mfw_is_the_weighted_svm_of_its_working_set(schedule, name, data_dir):
    x, y = named(name, data_dir)
    found = solve(problem_of(x, y, 10.0, "mfw", 1e-8), schedule)
    binary = (found.role > IDLE).astype(float)
    assert 0 < binary.sum() < len(y)
    again = solve(problem_of(x, y, 10.0, "fw", 1e-8, margin=binary), schedule)
    assert again.objective == pytest.approx(found.objective, rel=1e-6)
    assert np.allclose(again.alpha, found.alpha, atol=1e-6)


@pytest.mark.parametrize("algorithm", ["fw", "mfw"])
def test_every_step_is_that_of_a_plain_numpy_loop(algorithm, data_dir):
    """With powers of two for weights nothing is rounded that was not without them."""
    x, y = named("sonar", data_dir)
    t = np.random.default_rng(7).choice([0.5, 1.0, 2.0], len(y))
    C = np.random.default_rng(8).uniform(1.0, 5.0, len(y))
    q = np.outer(y / t, y / t) * kernel_matrix(RBF, x) + np.diag(1 / (C * t * t))
    plain = reference.train(q, algorithm, 1e-5)
    state = solve(problem_of(x, y, C, algorithm, margin=t))
    assert state.iteration == len(plain.forward) > 100
    assert np.allclose(state.alpha, plain.alpha, rtol=1e-9, atol=1e-14)
    assert np.array_equal(state.role > IDLE, plain.working)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(4, 40),
    algorithm=st.sampled_from(["fw", "mfw"]),
    schedule=st.sampled_from(SCHEDULES),
    idle=st.sampled_from([0.0, 0.3]),
    spread=st.sampled_from([1.0, 100.0]),
    intercept=st.sampled_from([0.0, 1.0]),
)
def test_random_problems(seed, n, algorithm, schedule, idle, spread, intercept):
    rng = np.random.default_rng(seed)
    x, y = random_problem(rng, n, 3)
    t = np.exp(rng.uniform(-1, 1, n) * np.log(spread) / 2)
    t[2:][rng.random(n - 2) < idle] = 0.0
    C = rng.uniform(0.5, 5.0, n)
    problem = problem_of(x, y, C, algorithm, 1e-5, margin=t, intercept=intercept)
    state = solve(problem, schedule, problem.start(int(rng.integers(n))))
    a = coefficients(problem, state)
    assert (a >= 0).all()
    assert not a[t == 0].any()
    assert np.dot(t, a) == pytest.approx(1, abs=1e-9)
    assert np.array_equal(state.alpha > 0, state.role == SUPPORT)
    g = q_matrix(x, y, C, intercept=intercept) @ a
    working, support = state.role > IDLE, state.role == SUPPORT
    per_margin = g[working] / t[working]
    assert per_margin.min() >= (g[support] / t[support]).max() - 2e-5
    assert (g[(~working) & (t > 0)] >= -1e-9).all()


def test_a_quadratic_programme_in_the_words_of_the_paper():
    """Not substituted: min a'Qa, a >= 0, sum t a = 1, by scipy's general solver."""
    from scipy.optimize import minimize

    rng = np.random.default_rng(9)
    x, y = random_problem(rng, 20, 2)
    t, C = rng.uniform(0.2, 2.0, 20), rng.uniform(0.5, 3.0, 20)
    q = q_matrix(x, y, C, intercept=0.3)
    found = minimize(
        lambda a: 0.5 * a @ q @ a,
        np.full(20, 1 / t.sum()),
        jac=lambda a: q @ a,
        bounds=[(0, None)] * 20,
        constraints={"type": "eq", "fun": lambda a: t @ a - 1, "jac": lambda a: t},
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    problem = problem_of(x, y, C, tolerance=1e-9, margin=t, intercept=0.3)
    state = solve(problem)
    assert found.success
    assert state.objective == pytest.approx(found.fun, rel=1e-6)
    assert np.allclose(coefficients(problem, state), found.x, atol=1e-4)


def test_no_weight_above_0():
    x, y = random_problem(np.random.default_rng(0), 10, 2)
    with pytest.raises(UserError, match="no pattern has a weight above 0"):
        problem_of(x, y, 1.0, margin=np.zeros(10))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_weights_of_a_round_rise_from_floor_to_ceiling(function):
    a = np.array([0.0, 0.001, 0.01, 0.05, 0.1, 0.2, 0.4, 3.0])
    t = Reweighting(2, function, 0.02, 0.9).margin(a)
    assert (np.diff(t) >= 0).all()
    assert t[0] == 0.02
    assert t[-1] == 0.9
    assert len(set(t)) > 4
    assert np.allclose(t, Reweighting(2, function, 0.02, 0.9).margin(7 * a)), "of any size"


def test_the_functions_are_those_of_the_readme():
    a = np.array([0.0, 1.0, 2.0, 3.0])  # the mean of the positive ones is 2
    expected = {
        "identity": [0.0, 0.5, 1.0, 1.5],
        "sqrt": [0.0, 0.5**0.5, 1.0, 1.5**0.5],
        "log": [0.0, np.log(1.5) / np.log(2), 1.0, np.log(2.5) / np.log(2)],
        "tanh": [0.0, np.tanh(0.5), np.tanh(1.0), np.tanh(1.5)],
    }
    for function, weights in expected.items():
        assert np.allclose(Reweighting(2, function, 0.0, 9.0).margin(a), weights)
    assert set(expected) == set(FUNCTIONS)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("floor", [0.0, 0.05])
def test_a_round_is_the_weighted_svm_of_what_the_last_one_found(schedule, floor, data_dir):
    x, y = named("heart", data_dir)
    C = np.where(y > 0, 3.0, 1.0)
    reweighting = Reweighting(3, "log", floor, 1.5)
    problem = problem_of(x, y, C, tolerance=1e-8)
    state = solve(problem, schedule)
    for finished in (1, 2):
        a = coefficients(problem, state)
        state = reweighting.next_round(problem, state)
        assert state.round == finished + 1
        t = np.clip(np.log2(1 + a / a[a > 0].mean()), floor, 1.5)
        assert np.allclose(state.margin, t, atol=2e-6)
        state = solve(problem, schedule, state)
        q = q_matrix(x, y, C)
        taking_part = t > 1e-6
        asked = t[taking_part]
        q = q[np.ix_(taking_part, taking_part)] / np.outer(asked, asked)
        b = by_libsvm(q)
        assert state.objective == pytest.approx(0.5 * b @ q @ b, rel=1e-5)
        assert (state.alpha[~taking_part] == 0).all()
