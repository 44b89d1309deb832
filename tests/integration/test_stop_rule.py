"""When a training has converged, and what is then true of its model."""

import json
from pathlib import Path

import numpy as np
import pytest

from bigsvm import BigSVC, load_model
from bigsvm.backends.in_memory import InMemoryBackend
from bigsvm.backends.local import LocalBackend
from bigsvm.config import TOLERANCE
from bigsvm.core.labels import one_vs_rest_signs
from bigsvm.core.stop_rule import StopRule
from bigsvm.inspect import inspect
from bigsvm.kernels import Kernel
from bigsvm.solvers import reference
from bigsvm.solvers.column_cache import space_for_columns
from bigsvm.solvers.diagnosis import diagnose
from bigsvm.solvers.joint import JointProblem
from bigsvm.solvers.precomputed import Limits
from bigsvm.solvers.precomputed import solve as solve_matrix
from bigsvm.solvers.problem import Problem
from bigsvm.solvers.schedule import ExactSchedule
from bigsvm.solvers.state import EXCLUDED, IDLE, quad_form
from tests.support.problems import (
    Rows,
    block_schedule,
    exact_schedule,
    kernel_matrix,
    problem_of,
    q_matrix,
    random_problem,
)
from tests.support.trainings import Train, final, summary

RBF = Kernel("rbf", gamma=0.5)
DEFAULT = StopRule(relative=TOLERANCE)
ALL = 2**28


def problem(x, y, C=10.0, algorithm="mfw", rule=DEFAULT, kernel=RBF, **weights):
    return Problem(InMemoryBackend(np.float32(x), kernel), y, C, algorithm, rule, **weights)


def solve(given, pause=lambda iteration: 2**62, columns=None, limit=10**5):
    """Run the exact schedule to the end."""
    n = len(given.y)
    space = space_for_columns(ALL, n) if columns is None else np.empty(columns * n, np.float32)
    state = given.start(0)
    for _ in exact_schedule(given, space).run(state, pause):
        assert state.iteration < limit
    return state


def twins(rng, n=60):
    """Rows, the first two of them equal and of opposite labels."""
    x, y = random_problem(rng, n, 3)
    x[1], y[0], y[1] = x[0], 1, -1
    return x, y


@pytest.mark.parametrize(
    "wrong",
    [{}, {"relative": 0.1, "absolute": 0.1}, {"relative": 1.0}, {"absolute": -1.0}],
)
def test_a_rule_is_relative_or_absolute(wrong):
    with pytest.raises(ValueError, match="StopRule"):
        StopRule(**wrong)


@pytest.mark.parametrize("algorithm", ["fw", "mfw"])
@pytest.mark.parametrize("C", [0.01, 10.0, 1e4])
def test_the_relative_gap_is_closed_and_was_not_before(algorithm, C):
    x, y = random_problem(np.random.default_rng(0), 200, 4)
    given = problem(x, y, C, algorithm)
    state = solve(given)
    q = q_matrix(RBF, x, y, C)
    assert state.gap <= TOLERANCE * quad_form(state.alpha, state.gradient)
    assert state.quad_form == pytest.approx(state.alpha @ q @ state.alpha, rel=1e-9)
    assert state.relative_gap == state.gap / state.quad_form
    # One step earlier the rule was not met: the estimate of a'Qa has missed nothing.
    before = given.start(0)
    for _ in exact_schedule(given, space_for_columns(ALL, 200)).run(before, lambda i: i + 1):
        if before.iteration == state.iteration - 1:
            break
    assert not given.stop_test(before, before.gradient)[1]


@pytest.mark.parametrize("algorithm", ["fw", "mfw"])
def test_bound_on_the_objective(algorithm):
    x, y = random_problem(np.random.default_rng(1), 150, 4)
    state = solve(problem(x, y, algorithm=algorithm))
    working = state.role > IDLE
    exact = problem(x[working], y[working], algorithm="fw", rule=StopRule(relative=1e-9))
    best = solve(exact).objective
    assert 0 <= (state.objective - best) / state.objective <= 2 * TOLERANCE


@pytest.mark.parametrize("algorithm", ["fw", "mfw"])
@pytest.mark.parametrize("pause", [1, 3, 100])
@pytest.mark.parametrize("columns", [None, 2, 30])
def test_interruptions_do_not_move_the_end(algorithm, pause, columns):
    x, y = random_problem(np.random.default_rng(2), 300, 4)
    straight = solve(problem(x, y, 100.0, algorithm))
    other = solve(problem(x, y, 100.0, algorithm), lambda i: i + pause, columns)
    assert other.iteration == straight.iteration > 300
    assert other.alpha.tobytes() == straight.alpha.tobytes()


def test_resumed_at_any_iteration_it_ends_at_the_same():
    x, y = random_problem(np.random.default_rng(3), 100, 3)
    given = problem(x, y)
    straight = solve(given)
    for cut in range(0, straight.iteration, 7):
        state = given.start(0)
        for schedule in (exact_schedule(given, space_for_columns(ALL, 100)) for _ in range(2)):
            for _ in schedule.run(state, lambda i, cut=cut: cut if i < cut else 2**62):
                if state.iteration == cut:
                    break
        assert state.iteration == straight.iteration
        assert state.alpha.tobytes() == straight.alpha.tobytes()


@pytest.mark.parametrize("algorithm", ["fw", "mfw"])
def test_scale_does_not_matter(algorithm):
    """Kernel and 1/C times 4: all of Q is, and with it gap and margin, but nothing else."""
    x, y = random_problem(np.random.default_rng(4), 200, 4)
    linear = Kernel("linear")
    plain = solve(problem(x, y, 1.0, algorithm, kernel=linear))
    scaled = solve(problem(2 * x, y, 0.25, algorithm, kernel=linear))
    assert scaled.iteration == plain.iteration > 100
    assert scaled.alpha.tobytes() == plain.alpha.tobytes()
    assert scaled.gap == 4 * plain.gap


def test_rows_that_are_repeated_leave_the_accuracy_as_it_is():
    """The margin shrinks, and the same gap is a larger share of it."""
    x, y = random_problem(np.random.default_rng(5), 100, 3)
    levels = []
    for times in (1, 8):
        rows, labels = np.repeat(x, times, axis=0), np.repeat(y, times)
        state = solve(problem(rows, labels, 1.0, "fw"))
        best = solve(problem(rows, labels, 1.0, "fw", StopRule(relative=1e-8))).objective
        assert 0 <= state.objective - best <= 2 * TOLERANCE * state.objective
        levels.append(state.quad_form)
    assert levels[1] < levels[0] / 2


def test_the_whole_matrix_ends_where_the_exact_schedule_does():
    x, y = random_problem(np.random.default_rng(6), 200, 4)
    for algorithm in ("fw", "mfw"):
        found = solve_matrix(kernel_matrix(RBF, x), y, [0.1, 10.0], algorithm, Limits(DEFAULT))
        for run, C in enumerate((0.1, 10.0)):
            state = solve(problem(x, y, C, algorithm))
            assert found.converged[run]
            assert found.iterations[run] == state.iteration
            assert found.alpha[run].tobytes() == state.alpha.tobytes()


def test_the_absolute_rule_takes_the_steps_of_the_paper():
    x, y = random_problem(np.random.default_rng(7), 150, 3)
    for algorithm in ("fw", "mfw"):
        plain = reference.train(q_matrix(RBF, x, y, 10.0), algorithm, 1e-5)
        state = solve(problem_of(x, y, RBF, 10.0, algorithm, tolerance=1e-5))
        assert state.iteration == len(plain.away)


@pytest.mark.parametrize("C", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("algorithm", ["fw", "mfw"])
def test_contradictory_twins_do_not_end_the_training(algorithm, C):
    """With the paper's rule the first step would be the last: 1/2 on each, f = 0 everywhere."""
    x, y = twins(np.random.default_rng(8))
    given = problem(x, y, C, algorithm)
    state = solve(given)
    assert state.iteration > 10
    decisions = kernel_matrix(RBF, x) @ (state.alpha * y)
    assert np.mean(np.sign(decisions[2:]) == y[2:]) > 0.6
    assert diagnose([state], [given], True) is None
    found = solve_matrix(kernel_matrix(RBF, x), y, [C], algorithm, Limits(DEFAULT))
    assert found.alpha[0].tobytes() == state.alpha.tobytes()
    held_out = np.arange(len(y)) % 5 == 4
    fold = solve_matrix(
        kernel_matrix(RBF, x), y, [C], algorithm, Limits(DEFAULT), held_out=held_out
    )
    assert fold.converged[0] and fold.support[0] > 2
    assert not fold.alpha[0, held_out].any()


def test_contradictory_twins_among_three_classes():
    rng = np.random.default_rng(9)
    x, _ = random_problem(rng, 90, 3)
    y = np.arange(90) % 3
    x += 4 * np.eye(3, dtype=np.float32)[y]
    x[1] = x[2] = x[0]
    backend = InMemoryBackend(x, RBF)
    signs = [one_vs_rest_signs(y, k) for k in range(3)]
    given = JointProblem([Problem(backend, of_class, 10.0, "mfw", DEFAULT) for of_class in signs])
    states = given.start(0)
    for _ in ExactSchedule(given, space_for_columns(ALL, 90)).run(states):
        pass
    verified = given.verified(states)
    assert verified.converged and given.relative_gap(verified.final) <= TOLERANCE
    support, coef = given.coefficients(states)
    decisions = coef @ kernel_matrix(RBF, x)[support]
    assert np.mean(decisions.argmax(axis=0)[3:] == y[3:]) > 0.9


def test_contradictory_twins_in_the_block_schedule():
    x, y = twins(np.random.default_rng(10), 400)
    given = problem(x, y)
    state = given.start(0)
    for _ in block_schedule(given, RBF, 2**22, 32).run(state):
        assert state.iteration < 10**5
    assert given.stop_test(state, state.gradient)[1]
    assert state.n_support > 10


@pytest.mark.parametrize("algorithm", ["fw", "mfw"])
def test_rows_that_are_all_equal(algorithm):
    x = np.ones((20, 2), np.float32)
    y = np.where(np.arange(20) % 2, 1, -1).astype(np.int8)
    given = problem(x, y, algorithm=algorithm)
    state = solve(given)
    assert state.relative_gap <= TOLERANCE
    told = diagnose([state], [given], True)
    assert "decision value is 0 for 20 of 20" in told and "both classes are the same" in told
    # Three of four are of one class: that is known of them.
    y = np.where(np.arange(20) % 4, 1, -1).astype(np.int8)
    given = problem(x, y, algorithm=algorithm)
    state = solve(given)
    assert ((kernel_matrix(RBF, x) @ (state.alpha * y)) > 0).all()
    assert "the same for all training patterns" in diagnose([state], [given], True)


@pytest.mark.parametrize("algorithm", ["fw", "mfw"])
def test_a_kernel_far_too_narrow(algorithm):
    x, y = random_problem(np.random.default_rng(11), 150, 3)
    given = problem(x, y, algorithm=algorithm, kernel=Kernel("rbf", 1e9))
    state = solve(given)
    assert state.n_support == 150  # each decides about itself
    told = diagnose([state], [given], True)
    assert "150 of 150 training patterns are support vectors" in told and "too narrow" in told


def test_rows_far_from_all_support_vectors():
    """Isolated rows of either class: their decision values are small, and nothing cancels."""
    x = np.random.default_rng(0).standard_cauchy((1000, 5)).astype(np.float32)
    y = np.where(x.sum(axis=1) > 0, 1, -1).astype(np.int8)
    given = problem(x, y, kernel=Kernel("rbf", 0.5))
    state = solve(given)
    told = diagnose([state], [given], True)
    assert "decision value is 0 for" in told and "too narrow" in told


def test_one_that_ended_early_is_told_apart():
    x, y = twins(np.random.default_rng(12))
    given = problem(x, y)
    state = given.start(0)
    next(exact_schedule(given, space_for_columns(ALL, len(y))).run(state, lambda i: i + 1))
    assert "ended too early" in diagnose([state], [given], False)


def test_a_tolerance_as_large_as_the_margin_is_told():
    x, y = random_problem(np.random.default_rng(13), 100, 3)
    given = problem(x, y, rule=StopRule(absolute=0.5))
    state = solve(given)
    assert "as large as the margin" in diagnose([state], [given], True)
    assert diagnose([state], [given], False) is None


@pytest.mark.parametrize("algorithm", ["fw", "mfw"])
@pytest.mark.parametrize("weights", ["margin", "C"])
@pytest.mark.parametrize("schedule", ["exact", "block"])
def test_patterns_of_weight_0_never_join(algorithm, weights, schedule):
    """Their derivative is 0 at all times, which lets others join."""
    x, y = random_problem(np.random.default_rng(14), 120, 3)
    zeros = np.ones(120)
    zeros[::3] = 0.0
    given = (
        problem(x, y, algorithm=algorithm, margin=zeros)
        if weights == "margin"
        else problem(x, y, 10 * zeros, algorithm)
    )
    state = given.start(0)
    steps = (
        exact_schedule(given, space_for_columns(ALL, 120))
        if schedule == "exact"
        else block_schedule(given, RBF, 2**22, 32)
    ).run(state)
    for _ in steps:
        assert (state.role[::3] == EXCLUDED).all()
        assert not state.gradient[::3].any()
    assert given.stop_test(state, state.gradient)[1]
    assert state.n_working <= 80
    assert not state.alpha[::3].any()


def test_kernel_values_are_counted_the_same_everywhere():
    x, _ = random_problem(np.random.default_rng(15), 70, 3)
    for kernel, a_row in ((RBF, 70), (Kernel("linear"), 0)):
        for backend in (InMemoryBackend(x, kernel), LocalBackend(Rows(x, 32), kernel, 0)):
            out = np.empty((5, 70), np.float32)
            backend.columns(x[:5], out, np.arange(5))
            assert backend.kernel_values.total == 350
            backend.matvec(x[:4], np.ones(4))
            assert backend.kernel_values.total == 350 + (4 * a_row or 70)
            backend.matvec(x[:4], np.ones((4, 3)))
            assert backend.kernel_values.total == 350 + (8 * a_row or 70 + 3 * 70)


def test_hot_sets_count_for_the_training():
    x, y = random_problem(np.random.default_rng(16), 400, 3)
    given = problem(x, y)
    state = given.start(0)
    counted = given.backend.kernel_values
    assert counted.total == 400
    for _ in block_schedule(given, RBF, 2**22, 32).run(state):
        pass
    passes = 400 * state.passes  # a row or more in each
    assert counted.total > 400 + passes


RELATIVE = ("solver.absolute_tolerance=null", f"solver.tolerance={TOLERANCE}", "model.C=1")


def test_what_a_run_tells_of_its_gap_and_work(train: Train, tmp_path: Path) -> None:
    done = train(tmp_path / "run", *RELATIVE)
    told = summary(tmp_path / "run")
    assert told["status"] == "converged" and "warning" not in done.stderr
    assert told["relative_gap"] <= TOLERANCE and told["true_relative_gap"] <= TOLERANCE
    assert told["true_relative_gap"] == pytest.approx(told["true_gap"] / (2 * told["objective"]))
    n = 3000
    assert told["kernel_values"] >= n * told["n_support"]  # the last gradient alone takes them
    assert told["work"] == round(told["kernel_values"] / (n * told["n_support"]), 2)
    assert f"({told['true_relative_gap']:.1e} of the margin)" in done.stdout
    metrics = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(metrics[-1])["relative_gap"] == pytest.approx(told["relative_gap"], rel=1e-6)
    model = tmp_path / "run" / "model.safetensors"
    assert load_model(model).about["relative_gap"] == told["true_relative_gap"]
    assert inspect(model)["training"]["relative_gap"] == told["true_relative_gap"]


def test_a_model_that_has_not_converged_is_inspected_with_its_run(halfway: Path) -> None:
    model = halfway / "model.safetensors"
    assert "relative_gap" not in load_model(model).about  # or it were not the snapshot's bits
    found = inspect(model)["training"]
    assert found["relative_gap"] == summary(halfway)["true_relative_gap"]


def test_kernel_values_of_all_processes_are_counted(
    train: Train, straight: Path, halfway: Path
) -> None:
    before = summary(halfway)["kernel_values"]
    train(halfway)
    after, alone = summary(halfway)["kernel_values"], summary(straight)["kernel_values"]
    # The cache starts empty, so resuming saves no column.
    assert after >= alone and after > before + 3000 * summary(halfway)["n_support"]
    assert final(halfway) == final(straight)
    train(halfway, "solver.max_iterations=1000000")  # nothing left to do but to verify
    assert summary(halfway)["kernel_values"] >= before


def test_a_run_with_a_tolerance_above_the_margin_says_so(train: Train, tmp_path: Path) -> None:
    done = train(tmp_path / "run", "solver.absolute_tolerance=0.5")
    assert summary(tmp_path / "run")["status"] == "converged"
    assert summary(tmp_path / "run")["true_relative_gap"] >= 1
    assert "warning: the gap is as large as the margin" in done.stderr


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("n", [60, 1200])  # small enough to be polished, and not
def test_the_estimator_has_the_same_rule(classes: int, n: int) -> None:
    x, _ = random_problem(np.random.default_rng(17), n, 3)
    y = np.arange(n) % classes
    x += 2 * np.eye(3, dtype=np.float32)[y]
    svc = BigSVC().fit(x, y)
    assert svc.get_params()["tol"] == TOLERANCE
    assert (svc.relative_gap_ <= TOLERANCE).all()
    assert svc.relative_gap_.shape == svc.gap_.shape
    assert svc.kernel_values_ > n * len(svc.support_)
    assert svc.to_model().about["relative_gap"] == svc.relative_gap_.max()
    absolute = BigSVC(absolute_tol=1e-6).fit(x, y)
    assert (absolute.gap_ <= 1e-6).all()


def test_the_estimator_takes_one_rule() -> None:
    x, y = random_problem(np.random.default_rng(18), 30, 2)
    for wrong, told in (
        ({"tol": 1e-3, "absolute_tol": 1e-5}, "not both"),
        ({"tol": 1.0}, "below 1"),
        ({"absolute_tol": 0.0}, "above 0"),
    ):
        with pytest.raises(ValueError, match=told):
            BigSVC(**wrong).fit(x, y)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_estimator_warns_of_a_model_that_decides_nothing(classes: int) -> None:
    y = np.arange(30) % classes
    with pytest.warns(UserWarning, match=r"decision value is (0|the same) for"):
        BigSVC().fit(np.ones((30, 2)), y)


def test_the_estimator_warns_of_a_tolerance_above_the_margin() -> None:
    x, y = random_problem(np.random.default_rng(19), 1500, 2)
    with pytest.warns(UserWarning, match="as large as the margin"):
        BigSVC(C=100.0, absolute_tol=0.5).fit(x, y)


def test_the_estimator_gets_past_contradictory_twins() -> None:
    x, y = twins(np.random.default_rng(20), 1200)
    svc = BigSVC(algorithm="mfw").fit(x, y)
    assert len(svc.support_) > 10 and svc.score(x, y) > 0.6


@pytest.mark.parametrize("schedule", ["exact", "block"])
def test_contradictory_twins_of_three_classes_in_either_schedule(schedule: str) -> None:
    rng = np.random.default_rng(21)
    y = np.arange(300) % 3
    x = rng.standard_normal((300, 3)).astype(np.float32) + 4 * np.eye(3, dtype=np.float32)[y]
    x[1] = x[2] = x[0]
    svc = BigSVC(algorithm="mfw", schedule=schedule).fit(x, y)
    assert (svc.relative_gap_ <= TOLERANCE).all() and svc.score(x[3:], y[3:]) > 0.9
