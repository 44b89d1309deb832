"""Compilation is announced; what was compiled once is not compiled again."""

import time

import numpy as np
import pytest
from numba import njit

from bigsvm.backends.in_memory import InMemoryBackend
from bigsvm.core.stop_rule import StopRule
from bigsvm.kernels import Kernel, block_of, panels
from bigsvm.solvers.column_cache import space_for_columns
from bigsvm.solvers.problem import Problem
from bigsvm.solvers.steps import steps
from bigsvm.terminal import compiling
from bigsvm.terminal.compiling import notify_compilation
from bigsvm.training.loop import Stopwatch
from tests.support.problems import exact_schedule


def test_it_is_said_once_and_only_while_compiling(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "SECONDS_BEFORE_MESSAGE", 0.0)
    with notify_compilation():
        time.sleep(0.1)
        assert capsys.readouterr().err == ""
        for _ in range(2):
            njit(lambda x: np.sort(x) + 1)(np.arange(3))
        assert capsys.readouterr().err.count("compiling") == 1
    njit(lambda x: x + 1)(1)
    assert capsys.readouterr().err == ""


def test_compiling_is_no_time_of_training() -> None:
    with notify_compilation() as timer:
        stopwatch = Stopwatch(time.monotonic() - 100, timer)
        stopwatch.earlier = 7.0
        stopwatch.start_training()
        began = time.monotonic()
        njit(lambda x: np.sort(x) + 2)(np.arange(3))
        seconds = time.monotonic() - began
        assert 0.5 * seconds < timer.seconds <= seconds
        assert 7 <= stopwatch.training < 7 + 0.5 * seconds
        time.sleep(0.1)
        assert stopwatch.training >= 7.1
        assert stopwatch.command >= 100.1 + 0.5 * seconds


def test_labels_that_can_be_written_to_compile_nothing_again() -> None:
    kernel = Kernel("rbf", 1.0)
    x = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    y = np.where(x[:, 0] > 0, 1, -1).astype(np.int8)
    compiled = []
    for writeable in (True, False):  # a hot set or an array of the user's, and a store
        y.setflags(write=writeable)
        problem = Problem(InMemoryBackend(x, kernel), y, 1.0, "mfw", StopRule(absolute=1e-5))
        schedule = exact_schedule(problem, space_for_columns(10**6, 50))
        for _ in schedule.run(problem.start(0)):
            pass
        compiled.append(len(steps.signatures))
    assert compiled[0] == compiled[1]


def test_rows_from_dask_that_cannot_be_written_to_compile_nothing_again() -> None:
    kernel = Kernel("rbf", 1.0)
    rows, coef = np.ones((3, 2), np.float32), np.ones((3, 1))
    block, out, sums = block_of(rows), np.empty((3, 3), np.float32), np.zeros((1, 3))
    compiled = []
    for writeable in (True, False):
        for array in (rows, coef):
            array.setflags(write=writeable)
        panels.columns(kernel, block, rows, out, np.arange(3))
        panels.products(kernel, block, rows, coef, sums)
        compiled.append(
            (len(panels._columns.threaded.signatures), len(panels._products.threaded.signatures))
        )
    assert compiled[0] == compiled[1]
