"""Small problems, and plain ways to solve them, for the tests to compare with."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bigsvm.backends.local import LocalBackend
from bigsvm.core.stop_rule import StopRule
from bigsvm.kernels import Kernel, block_of, columns, panels_of
from bigsvm.preparation.sources import SOURCES, locate_files
from bigsvm.readers import open_reader
from bigsvm.solvers.joint import JointProblem, JointState
from bigsvm.solvers.problem import Problem
from bigsvm.solvers.schedule import BlockSchedule, ExactSchedule, Pause, Schedule, never
from bigsvm.solvers.state import State


def absolute(tolerance: float) -> StopRule:
    """The paper's rule, for tests of its iterates."""
    return StopRule(absolute=tolerance)


class Rows:
    """Rows in memory, served like a stored data set."""

    n_readers = 1

    def __init__(self, x: np.ndarray, chunk_rows: int | None = None) -> None:
        self.x = np.ascontiguousarray(x, np.float32)
        self.n, self.d = self.x.shape
        self.chunk_rows = chunk_rows or self.n
        self.reads = 0

    def spans(self):
        for start in range(0, self.n, self.chunk_rows):
            yield start, min(start + self.chunk_rows, self.n)

    def read(self, start, stop, space=None):
        self.reads += 1
        return self.x[start:stop].copy()

    def read_panels(self, start, stop, panels, space):
        return panels_of(self.read(start, stop))

    def gather(self, indices, out=None, at=None):
        if out is None:
            return self.x[indices]
        out[at] = self.x[indices]
        return out


def problem_of(x, y, kernel, C=1.0, algorithm="mfw", tolerance=1e-5, **backend) -> Problem:
    options = {"resident_bytes": 2**30} | backend
    return Problem(LocalBackend(Rows(x), kernel, **options), y, C, algorithm, absolute(tolerance))


class OneClass:
    """A schedule of a two-class problem; yields its state, or at a pause a copy that is ahead."""

    def __init__(self, schedule: Schedule, pause: Pause) -> None:
        self._schedule, self._pause = schedule, pause

    def run(self, state: State, pause: Pause | None = None) -> Iterator[State]:
        joint = JointState([state], state.passes)
        for event in self._schedule.run(joint, pause or self._pause):
            if event.what not in ("begin", "end"):
                yield state if event.what == "steps" else event.state.now(0)


def exact_schedule(problem: Problem, *arguments: Any) -> OneClass:
    """It pauses after every step, unless told otherwise."""
    return OneClass(ExactSchedule(JointProblem([problem]), *arguments), lambda i: i + 1)


def block_schedule(problem: Problem, *arguments: Any) -> OneClass:
    return OneClass(BlockSchedule(JointProblem([problem]), *arguments), never)


def kernel_matrix(kernel: Kernel, x: np.ndarray) -> np.ndarray:
    """All kernel values, as the compiled kernels give them."""
    x = np.ascontiguousarray(x, np.float32)
    matrix = np.empty((len(x), len(x)), np.float32)
    columns(kernel, block_of(x), x, matrix, np.arange(len(x)))
    return matrix


def named(name: str, data_dir: Path) -> tuple[np.ndarray, np.ndarray]:
    """Rows scaled to [-1, 1], and signs, of a named source."""
    batches = list(open_reader(locate_files(name)[0]).batches())
    x = np.concatenate([batch.x for batch in batches])
    y = np.concatenate([batch.y for batch in batches])
    low, high = x.min(0), x.max(0)
    x = 2 * (x - low) / np.where(high > low, high - low, 1) - 1
    signs = np.where(y == SOURCES[name].positive, 1, -1)
    return x.astype(np.float32), signs.astype(np.int8)


def random_problem(rng: np.random.Generator, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    x = rng.standard_normal((n, d)).astype(np.float32)
    y = np.where(x[:, 0] * x[:, -1] + 0.5 * rng.standard_normal(n) > 0, 1, -1).astype(np.int8)
    y[:2] = 1, -1
    return x, y


def q_matrix(kernel: Kernel, x: np.ndarray, y: np.ndarray, C: float) -> np.ndarray:
    signs = y.astype(np.float64)
    return np.outer(signs, signs) * kernel_matrix(kernel, x) + np.eye(len(y)) / C
