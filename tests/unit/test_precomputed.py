"""Training on a whole kernel matrix: the bits of the exact schedule, folds and all."""

import threading

import numpy as np
import pytest

from bigsvm.backends.in_memory import InMemoryBackend
from bigsvm.estimator.fit import FitOptions, fit_classes
from bigsvm.kernels import Kernel
from bigsvm.solvers.column_cache import space_for_columns
from bigsvm.solvers.precomputed import (
    MAX_ITERATIONS,
    NUMERICAL_FAILURE,
    STOPPED,
    Limits,
    decisions,
    kernel_matrix,
    solve,
)
from bigsvm.solvers.solve import Monitor
from tests.support.problems import absolute, exact_schedule, named, problem_of, random_problem

RBF = Kernel("rbf", gamma=0.5)
LINEAR = Kernel("linear")
PAPER = absolute(1e-5)
GRID = (1e-3, 0.1, 1.0, 30.0, 1e4)


def exact(x, y, kernel, C, algorithm, limit=10**6, initial=0):
    """What the exact schedule comes to, column by column."""
    problem = problem_of(x, y, kernel, C, algorithm)
    state = problem.start(initial)
    for _ in exact_schedule(problem, space_for_columns(2**30, len(y))).run(state):
        if state.iteration >= limit:
            break
    return state


@pytest.mark.parametrize("algorithm", ["fw", "mfw"])
@pytest.mark.parametrize("kernel", [RBF, LINEAR], ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("name", ["heart", "sonar"])
def test_every_C_gives_the_bits_of_the_exact_schedule(name, kernel, algorithm, data_dir):
    x, y = named(name, data_dir)
    found = solve(kernel_matrix(kernel, x), y, GRID, algorithm, Limits(PAPER, 20_000), initial=3)
    for run, C in enumerate(GRID):
        state = exact(x, y, kernel, C, algorithm, limit=20_000, initial=3)
        assert np.array_equal(found.alpha[run], state.alpha)
        assert found.iterations[run] == state.iteration
        assert found.working[run] == state.n_working
        assert found.support[run] == state.n_support
        assert found.converged[run] == (state.iteration < 20_000)


@pytest.mark.parametrize("algorithm", ["fw", "mfw"])
def test_what_is_held_out_takes_no_part_and_is_decided(algorithm, data_dir):
    x, y = named("heart", data_dir)
    held_out = np.random.default_rng(0).random(len(y)) < 0.3
    kept = np.flatnonzero(~held_out)
    found = solve(
        kernel_matrix(RBF, x),
        y,
        GRID,
        algorithm,
        Limits(PAPER),
        initial=int(kept[5]),
        held_out=held_out,
    )
    alone = solve(kernel_matrix(RBF, x[kept]), y[kept], GRID, algorithm, Limits(PAPER), initial=5)
    assert np.array_equal(found.alpha[:, kept], alone.alpha)
    assert not found.alpha[:, held_out].any()
    for name in ("iterations", "working", "support", "status", "gap"):
        assert np.array_equal(getattr(found, name), getattr(alone, name)), name
    assert np.array_equal(found.decisions[:, kept], alone.decisions)
    of_others = decisions(kernel_matrix(RBF, x[kept], x[held_out]), y[kept], alone.alpha)
    assert np.array_equal(found.decisions[:, held_out], of_others)
    plain = (alone.alpha * y[kept]) @ np.exp(
        -0.5 * np.square(x[kept][:, None] - x[held_out].astype(np.float64)).sum(2)
    )
    assert np.allclose(of_others, plain, rtol=1e-4, atol=1e-6)


def test_it_ends_where_an_ordinary_fit_ends():
    x, y = random_problem(np.random.default_rng(5), 3000, 4)
    found = solve(kernel_matrix(RBF, x), y, [10.0], "mfw", Limits(PAPER))
    options = FitOptions(RBF, 10.0, "mfw", "exact", PAPER, 2**30, 0)
    (fitted,) = fit_classes(InMemoryBackend(x, RBF), [y], options, Monitor())
    assert np.array_equal(found.alpha[0], fitted.alpha)
    assert found.iterations[0] == fitted.iterations
    assert found.gap[0] == pytest.approx(fitted.gap, abs=1e-12)


def test_why_a_run_ended_is_told():
    x, y = random_problem(np.random.default_rng(5), 200, 4)
    matrix = kernel_matrix(RBF, x)
    found = solve(matrix, y, [10.0, 1e-3], "fw", Limits(PAPER, 100))
    assert found.status[0] == MAX_ITERATIONS
    assert found.iterations[0] == 100
    assert found.gap[0] > 1e-5
    assert (
        solve(np.full_like(matrix, np.inf), y, [1.0], "fw", Limits(PAPER)).status
        == NUMERICAL_FAILURE
    ).all()
    with pytest.raises(ValueError, match="held out"):
        solve(matrix, y, [1.0], "fw", Limits(PAPER), held_out=np.arange(200) == 0)


def test_another_thread_can_stop_it():
    x, y = random_problem(np.random.default_rng(5), 1000, 4)
    stop = np.zeros(1, bool)
    results = []
    thread = threading.Thread(
        target=lambda: results.append(
            # No gap is that small: it would take hours.
            solve(kernel_matrix(RBF, x), y, [1.0, 1.0], "fw", Limits(absolute(1e-300), 2**40, stop))
        )
    )
    thread.start()
    stop[0] = True
    thread.join(60)
    assert not thread.is_alive()
    assert results[0].status[1] == STOPPED
