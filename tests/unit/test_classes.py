"""More than two classes: each is what it would be alone, and they share every kernel value."""

from collections import deque
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest

from bigsvm.backends.in_memory import InMemoryBackend
from bigsvm.backends.local import LocalBackend
from bigsvm.core.labels import one_vs_rest_signs
from bigsvm.core.stop_rule import StopRule
from bigsvm.estimator.fit import FitOptions, fit_classes, pauses
from bigsvm.kernels import Kernel
from bigsvm.solvers import schedule as schedules
from bigsvm.solvers.column_cache import space_for_columns
from bigsvm.solvers.joint import JointProblem, JointState
from bigsvm.solvers.problem import Problem
from bigsvm.solvers.schedule import BlockSchedule, ExactSchedule
from bigsvm.solvers.solve import Monitor
from tests.support.class_problems import Counting, digits
from tests.support.problems import Rows, block_schedule, exact_schedule, kernel_matrix

RBF = Kernel("rbf", gamma=0.05)
KERNELS = [RBF, Kernel("linear"), Kernel("poly", gamma=0.1, coef0=1.0, degree=2)]
MEMORY = 2**24
PAPER = StopRule(absolute=1e-5)
HOT_SET = 16
NO_LIMIT = 2**62


def never(iteration):
    return NO_LIMIT


def often(iteration):
    return (iteration // 97 + 1) * 97


def classes_of(backend, y, *what):
    """The problem of each class against the rest."""
    signs = signs_of(y)
    return JointProblem([Problem(backend, of_class, *what) for of_class in signs])


def signs_of(y):
    return [one_vs_rest_signs(y, k) for k in range(int(y.max()) + 1)]


def together(x, y, kernel, schedule, stop_rule=PAPER, limit=NO_LIMIT, pause=never, backend=None):
    """Train all classes; returns the problem, the states and the last that was yielded."""
    backend = backend or InMemoryBackend(x, kernel)
    problem = classes_of(backend, y, 1.0, "mfw", stop_rule)
    states = problem.start(0)
    (last,) = deque(in_order(problem, kernel, schedule, limit).run(states, pause), maxlen=1)
    assert last.what == "end"
    return problem, states, last.state


@pytest.mark.parametrize("columns", [2, 3, 40])
def test_few_columns_in_memory_serve_all_classes(columns):
    """Each counts its own iterations: a late class must not lose what it needs to an early one."""
    x, y = digits(150)
    y = y % 3
    _, expected, _ = together(x, y, RBF, "exact")
    problem = classes_of(InMemoryBackend(x, RBF), y, 1.0, "mfw", PAPER)
    states = problem.start(0)
    for _ in ExactSchedule(problem, np.empty(columns * len(y), np.float32)).run(states, never):
        pass
    for found, wanted in zip(states.classes, expected.classes, strict=True):
        assert np.array_equal(found.alpha, wanted.alpha)


def in_order(problem, kernel, schedule, limit=NO_LIMIT):
    if schedule == "exact":
        return ExactSchedule(problem, space_for_columns(MEMORY, problem.backend.n), limit)
    return BlockSchedule(problem, kernel, MEMORY, HOT_SET, limit)


def alone(x, y, k, kernel, schedule, stop_rule=PAPER, limit=NO_LIMIT, backend=None):
    """Train one class against the rest as a two-class problem."""
    problem = Problem(
        backend or InMemoryBackend(x, kernel), one_vs_rest_signs(y, k), 1.0, "mfw", stop_rule
    )
    state = problem.start(0)
    if schedule == "exact":
        steps = exact_schedule(problem, space_for_columns(MEMORY, len(y))).run(
            state, lambda i: limit
        )
    else:
        steps = block_schedule(problem, kernel, MEMORY, HOT_SET).run(state, lambda i: limit)
    for now in steps:
        if now.iteration >= limit:
            (final,) = JointProblem([problem]).verified(JointState([now])).final.classes
            return final
    return state


@pytest.mark.parametrize("schedule", ["exact", "block"])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_each_class_is_what_it_is_alone_bit_for_bit(kernel, schedule):
    x, y = digits(600)
    _, states, last = together(x, y, kernel, schedule, pause=often)
    assert states.closed == set(range(10)) and not last.ahead
    for k, state in enumerate(states.classes):
        expected = alone(x, y, k, kernel, schedule)
        assert state.iteration == expected.iteration > 10
        assert state.alpha.tobytes() == expected.alpha.tobytes()
        assert state.gradient.tobytes() == expected.gradient.tobytes()
        assert state.role.tobytes() == expected.role.tobytes()


@pytest.mark.parametrize("schedule", ["exact", "block"])
def test_the_limit_is_of_each_class(schedule):
    x, y = digits(600)
    limit = 40
    problem, _, last = together(x, y, RBF, schedule, limit=limit)
    assert last.reached(limit)
    verified = problem.verified(last).final
    assert [state.iteration for state in verified.classes] == [limit] * 10
    for k, state in enumerate(verified.classes):
        expected = alone(x, y, k, RBF, schedule, limit=limit)
        assert state.alpha.tobytes() == expected.alpha.tobytes()
        assert last.quad_form(k) == pytest.approx(2 * expected.objective, rel=1e-9)
        assert 0 <= state.drift < 1e-12
        np.testing.assert_allclose(state.gradient, expected.gradient, rtol=0, atol=1e-12)


def test_each_class_against_an_independent_solver():
    """LIBSVM's one-class SVM on the precomputed matrix is the same problem."""
    from sklearn.svm import OneClassSVM

    x, y = digits(300)
    n = len(y)
    problem = classes_of(InMemoryBackend(x, RBF), y, 1.0, "fw", StopRule(absolute=1e-9))
    states = problem.start(0)
    for _ in in_order(problem, RBF, "exact").run(states):
        pass
    kernel = kernel_matrix(RBF, x).astype(np.float64)
    for k, state in enumerate(states.classes):
        signs = one_vs_rest_signs(y, k).astype(np.float64)
        q = np.outer(signs, signs) * kernel + np.eye(n)
        other = OneClassSVM(kernel="precomputed", nu=1 / n, tol=1e-10).fit(q)
        alpha = np.zeros(n)
        alpha[other.support_] = other.dual_coef_[0]
        alpha /= alpha.sum()
        assert state.objective == pytest.approx(0.5 * alpha @ q @ alpha, rel=1e-8)
        np.testing.assert_allclose(state.alpha, alpha, rtol=0, atol=1e-6)


def test_every_pass_is_shared():
    """A pass is about the rows that any class wants of it, and each of them once."""
    x, y = digits(1200)
    shared = Counting(x, RBF)
    _, states, _ = together(x, y, RBF, "block", backend=shared)
    for rows in shared.passes:
        assert len(np.unique(rows, axis=0)) == len(rows)
    separate = []
    for k in range(10):
        separate.append(Counting(x, RBF))
        alone(x, y, k, RBF, "block", backend=separate[k])
    assert len(shared.passes) <= states.passes  # those over samples are not of this backend
    assert len(shared.passes) < 0.5 * sum(len(backend.passes) for backend in separate)
    assert shared.values_computed < sum(backend.values_computed for backend in separate)


def test_a_column_is_computed_once_for_all_classes():
    x, y = digits(600)
    shared = Counting(x, RBF)
    together(x, y, RBF, "exact", backend=shared)
    separate = [Counting(x, RBF) for _ in range(10)]
    for k in range(10):
        alone(x, y, k, RBF, "exact", backend=separate[k])
    assert shared.columns_computed <= len(y) + 1
    assert shared.columns_computed < 0.5 * sum(backend.columns_computed for backend in separate)


@pytest.mark.parametrize("schedule", ["exact", "block"])
def test_a_run_resumes_with_the_same_turns(schedule):
    """From a copy of the states at any moment: the same iterates, in the same order."""
    x, y = digits(600)
    backend = InMemoryBackend(x, RBF)
    problem = classes_of(backend, y, 1.0, "mfw", PAPER)
    every = 61

    def pause(iteration):
        return (iteration // every + 1) * every

    def iterates(states):
        found = {}
        for event in in_order(problem, RBF, schedule).run(states, pause):
            now = event.state
            if now.iteration % every == 0 and now.iteration not in found:
                seen = [(now.now(k).alpha.tobytes(), now.quad_form(k)) for k in range(10)]
                found[now.iteration] = seen, deepcopy(JointState(states.classes, states.passes))
        return found

    straight = iterates(problem.start(0))
    assert len(straight) > 5
    moments = sorted(straight)
    for moment in moments[1 : -1 : len(moments) // 3]:
        _, saved = straight[moment]
        again = iterates(saved)
        later = [i for i in moments if i in again]
        assert later and later[-1] == moments[-1]
        assert all(again[i][0] == straight[i][0] for i in later)


@pytest.mark.parametrize("schedule", ["exact", "block"])
def test_no_pause_is_passed_over(schedule):
    """Not even where the subproblem of a class ends, and another class takes the next step."""
    x, y = digits(300)
    problem = classes_of(InMemoryBackend(x, RBF), y, 1.0, "mfw", PAPER)
    events = in_order(problem, RBF, schedule).run(problem.start(0), lambda i: (i // 3 + 1) * 3)
    seen = {event.state.iteration for event in events}
    assert set(range(3, max(seen), 3)) <= seen


def test_passes_are_divided_where_too_many_rows_wait(monkeypatch):
    x, y = digits(600)
    _, whole, _ = together(x, y, RBF, "block")
    monkeypatch.setattr(schedules, "PRODUCT_ROWS", 30)
    _, divided, _ = together(x, y, RBF, "block")
    assert divided.passes > whole.passes
    for one, other in zip(divided.classes, whole.classes, strict=True):
        assert one.alpha.tobytes() == other.alpha.tobytes()


def test_no_pass_is_needed_where_a_hot_set_holds_all():
    x, y = digits(HOT_SET - 1)
    y = y % 3
    backend = Counting(x, RBF)
    _, states, _ = together(x, y, RBF, "block", backend=backend)
    _, exact, _ = together(x, y, RBF, "exact")
    assert states.passes == 0 and states.closed == {0, 1, 2}
    for one, other in zip(states.classes, exact.classes, strict=True):
        assert one.objective == pytest.approx(other.objective, rel=0.2)


@pytest.mark.parametrize("schedule", ["exact", "block"])
def test_fit_classes_is_a_fit_of_each_alone(schedule):
    x, y = digits(600)
    backend = InMemoryBackend(x, RBF)
    options = FitOptions(RBF, 1.0, "mfw", schedule, PAPER, MEMORY, 3)
    fits = fit_classes(backend, signs_of(y), options, Monitor())
    for fitted, signs in zip(fits, signs_of(y), strict=True):
        (expected,) = fit_classes(backend, [signs], options, Monitor())
        assert fitted.alpha.tobytes() == expected.alpha.tobytes()
        assert (fitted.iterations, fitted.status) == (expected.iterations, "converged")
        assert fitted.gap == expected.gap
        np.testing.assert_allclose(fitted.coef, expected.coef, rtol=1e-12)
    again = fit_classes(backend, signs_of(y), options, Monitor(), [f.alpha for f in fits])
    assert [fitted.iterations for fitted in again] == [0] * 10


def test_fit_classes_stops():
    x, y = digits(600)
    backend = InMemoryBackend(x, RBF)
    options = FitOptions(RBF, 1.0, "mfw", "exact", PAPER, MEMORY, 0)
    short = fit_classes(backend, signs_of(y), replace(options, max_iterations=20), Monitor())
    assert [(f.iterations, f.status) for f in short] == [(20, "max_iter")] * 10
    asked = []

    class Stop(Monitor):
        next_pause = staticmethod(pauses(options, every_step=True))

        def stop(self, event):
            asked.append(event.state.iteration)
            return "callback" if event.state.iteration >= 30 else None

    stopped = fit_classes(backend, signs_of(y), options, Stop())
    assert asked == sorted(asked) and asked[-1] == 30
    assert sum(f.iterations for f in stopped) == 30
    assert stopped[0].iterations == 30 and stopped[0].status == "callback"


@pytest.mark.parametrize(
    "kernel", [*KERNELS, Kernel("laplacian", 0.3)], ids=lambda kernel: kernel.name
)
def test_a_sum_is_the_same_bits_alone_and_among_others(kernel):
    """And a row with the coefficient 0 adds nothing to it."""
    random = np.random.default_rng(0)
    x = random.normal(size=(333, 7)).astype(np.float32)
    rows, coef = x[::2], random.normal(size=(167, 5))
    coef[random.random(coef.shape) < 0.6] = 0.0
    for backend in (InMemoryBackend(x, kernel), LocalBackend(Rows(x, 100), kernel, 2**20)):
        sums = backend.matvec(rows, coef)
        assert sums.shape == (5, 333)
        for c in range(5):
            own = np.flatnonzero(coef[:, c])
            alone = backend.matvec(rows[own], coef[own, c])
            assert alone.shape == (333,)
            assert alone.tobytes() == sums[c].tobytes()


def test_a_kernel_value_that_overflows_spoils_only_the_sums_it_is_in():
    kernel = Kernel("poly", gamma=1.0, coef0=0.0, degree=20)
    x = np.array([[1.0], [1e30]], np.float32)
    sums = InMemoryBackend(x, kernel).matvec(x, np.array([[1.0, 1.0], [0.0, 1.0]]))
    assert sums[0, 0] == 1.0
    assert np.isinf(sums[1, 1])


@pytest.mark.parametrize("schedule", ["exact", "block"])
def test_weights_and_an_intercept_are_those_of_each_class_alone(schedule):
    x, y = digits(400)
    random = np.random.default_rng(0)
    C = random.uniform(0.5, 2.0, len(y))
    C[[0, 5]] = 0.0  # these take no part, though one is where the training begins
    what = (C, "fw", StopRule(absolute=1e-4), random.uniform(0.5, 1.5, len(y)), 1.0)
    problem = classes_of(InMemoryBackend(x, RBF), y, *what)
    states = problem.start(0)
    for _ in in_order(problem, RBF, schedule).run(states):
        pass
    assert len(states.closed) == 10
    for k, state in enumerate(states.classes):
        one = Problem(problem.backend, one_vs_rest_signs(y, k), *what)
        alone = one.start(0)
        if schedule == "exact":
            steps = exact_schedule(one, space_for_columns(MEMORY, len(y))).run(alone)
        else:
            steps = block_schedule(one, RBF, MEMORY, HOT_SET).run(alone)
        for _ in steps:
            pass
        assert state.iteration == alone.iteration > 10
        assert state.alpha.tobytes() == alone.alpha.tobytes()
        assert not state.alpha[[0, 5]].any()
