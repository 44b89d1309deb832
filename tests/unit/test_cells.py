"""Subproblems larger than a hot set: their cells, and what is solved in them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigsvm.backends.local import LocalBackend
from bigsvm.kernels import Kernel
from bigsvm.solvers.cells import cells
from bigsvm.solvers.joint import JointProblem, JointState
from bigsvm.solvers.schedule import BlockSchedule
from bigsvm.solvers.state import PartialSolve
from bigsvm.training.checkpoint import Checkpoints
from tests.support.problems import Rows, problem_of, random_problem

RBF = Kernel("rbf", gamma=2.0)


def served(x, chunk_rows=None):
    return LocalBackend(Rows(x, chunk_rows), RBF, 2**20)


@settings(max_examples=50, deadline=None)
@given(n=st.integers(1, 300), most=st.integers(1, 100), sweep=st.integers(0, 5))
def test_every_pattern_is_in_one_cell(n, most, sweep):
    x = np.random.default_rng(n).normal(size=(n, 3))
    found = cells(served(x), most, sweep)
    assert max(len(cell) for cell in found) <= most
    assert len(found) <= max(1, 4 * n / most)
    assert np.array_equal(np.sort(np.concatenate(found)), np.arange(n))
    assert all((np.diff(cell) > 0).all() for cell in found)


def test_no_two_sweeps_divide_alike_and_chunks_do_not_matter():
    x = np.random.default_rng(0).normal(size=(500, 4))
    seen = set()
    for sweep in range(6):
        found = cells(served(x), 100, sweep)
        in_chunks = cells(served(x, chunk_rows=7), 100, sweep)
        assert all(np.array_equal(a, b) for a, b in zip(found, in_chunks, strict=True))
        seen.add(found[0].tobytes())
    assert len(seen) == 6


def test_every_other_division_keeps_neighbours_together():
    x = np.random.default_rng(1).uniform(size=(800, 1))
    extents = [[np.ptp(x[cell]) for cell in cells(served(x), 100, sweep)] for sweep in range(4)]
    assert max(extents[0] + extents[2]) < 0.2  # eight intervals
    assert min(extents[1] + extents[3]) > 0.8  # samples of the whole


def test_identical_patterns_are_divided_too():
    assert sorted(map(len, cells(served(np.ones((64, 2))), 10, 0))) == [8] * 8


@pytest.mark.parametrize("algorithm", ["fw", "mfw"])
@pytest.mark.parametrize("intercept", [0.0, 1.0])
def test_within_a_cell_the_preview_is_a_point_of_the_simplex(algorithm, intercept):
    """Its alpha sums to 1, and the derivatives and a'Qa it reports are those of this alpha."""
    x, y = random_problem(np.random.default_rng(2), 300, 3)
    problem = problem_of(x, y, RBF, 10.0, algorithm, tolerance=1e-6)
    problem.intercept = intercept
    state, within = JointState([problem.start(0)]), 0
    schedule = BlockSchedule(JointProblem([problem]), RBF, 2**20, hot_set=64)
    for event in schedule.run(state, lambda iteration: iteration + 13):
        block = event.state.ahead.get(0)
        if event.what != "pause" or block is None:
            continue
        within += block.inner is not None and block.inner.growth != 1
        now = event.state.now(0)
        gradient = problem.gradient(now.alpha)
        known, running = block.up_to_date
        assert now.alpha.sum() == pytest.approx(1, abs=1e-12)
        assert running == pytest.approx(gradient[known], rel=1e-6, abs=1e-9)
        assert event.state.quad_form(0) == pytest.approx(now.alpha @ gradient, rel=1e-6)
    assert within > 10


def test_cells_lead_to_the_solution_of_the_whole():
    x, y = random_problem(np.random.default_rng(3), 400, 2)
    problem = problem_of(x, y, RBF, 100.0, "fw", tolerance=1e-7)
    ends = []
    for hot_set in (1000, 100, 20):
        state = JointState([problem.start(0)])
        for _ in BlockSchedule(JointProblem([problem]), RBF, 2**20, hot_set).run(state):
            pass
        ends.append(state.classes[0])
    for end in ends[1:]:
        assert end.objective == pytest.approx(ends[0].objective, rel=1e-4)
        assert end.alpha == pytest.approx(ends[0].alpha, abs=1e-3)
        assert end.gap <= 1e-7


@pytest.mark.parametrize("algorithm", ["fw", "mfw"])
@pytest.mark.parametrize("n_classes", [1, 3])
def test_resumes_between_two_cells_to_the_same_bits(algorithm, n_classes, tmp_path):
    """What a checkpoint saves inside a subproblem is not computed again."""
    x, y = random_problem(np.random.default_rng(4), 300, 3)
    labels = [y, -y, np.roll(y, 100)][:n_classes]

    def begin():
        each = [problem_of(x, signs, RBF, 30.0, algorithm, tolerance=1e-4) for signs in labels]
        return JointProblem(each), BlockSchedule(JointProblem(each), RBF, 2**20, hot_set=40)

    problem, schedule = begin()
    straight = problem.start(0)
    checkpoints = Checkpoints(tmp_path, {"rows": 300}, keep=1)
    saved = []
    for number, event in enumerate(schedule.run(straight)):
        partial = [state.partial for state in straight.classes if state.partial is not None]
        if partial and event.what == "steps" and number % 7 == 0:
            checkpoints.save(straight, 0.0)
            found = checkpoints.latest().state
            assert found.resumable_iteration == straight.resumable_iteration
            saved.append((found, event.state.iteration))
    assert len(saved) > 5
    assert sum(found.resumable_iteration > found.iteration for found, _ in saved) > len(saved) / 2
    for state, iteration in saved[:: len(saved) // 5]:
        steps_again = iteration - state.resumable_iteration
        _, schedule = begin()
        events = [event.state.iteration for event in schedule.run(state)]
        assert 0 <= steps_again <= 300 and events[-1] == straight.iteration
        for one, other in zip(state.classes, straight.classes, strict=True):
            assert one.alpha.tobytes() == other.alpha.tobytes()
            assert one.gradient.tobytes() == other.gradient.tobytes()
            assert one.partial is None


def test_a_subproblem_of_other_patterns_begins_anew():
    x, y = random_problem(np.random.default_rng(5), 300, 3)
    problem = problem_of(x, y, RBF, 30.0, "mfw", tolerance=1e-4)
    ends = []
    for index in (None, np.arange(7)):
        state = JointState([problem.start(0)])
        if index is not None:
            none = np.zeros(7)
            role = none.astype(np.int8)
            state.classes[0].partial = PartialSolve(index, none, none, role, 1.0, 0.1, 0.5, 9, 3, 2)
        for _ in BlockSchedule(JointProblem([problem]), RBF, 2**20, hot_set=40).run(state):
            pass
        ends.append(state.classes[0].alpha.tobytes())
    assert ends[0] == ends[1]
