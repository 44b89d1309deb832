"""Guarantee 4: wide rows, too, are taken in pieces that fit in memory, to the same bits."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from bigsvm.backends import KernelCounter
from bigsvm.backends.in_memory import InMemoryBackend, SubsetBackend
from bigsvm.backends.local import LocalBackend
from bigsvm.backends.products import GatheredRows
from bigsvm.core.labels import one_vs_rest_signs
from bigsvm.kernels import Kernel
from bigsvm.solvers import block
from bigsvm.solvers.joint import JointProblem
from bigsvm.solvers.problem import Problem
from bigsvm.solvers.schedule import BlockSchedule
from bigsvm.stores.writer import StoreMetadata, StoreWriter
from tests.support.problems import Rows, absolute, random_problem
from tests.support.trainings import HANGS, environment

KERNELS = [Kernel("rbf", 0.1), Kernel("linear"), Kernel("poly", 0.1, 1.0, 2)]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("rows_at_once", [1, 7, 24, 10**6])
def test_pieces_change_no_bit(kernel: Kernel, rows_at_once: int) -> None:
    x, y = random_problem(np.random.default_rng(0), 70, 9)
    index = np.random.default_rng(1).permutation(70)[:31]
    for coef in (np.linspace(-1, 1, 31), np.linspace(-1, 1, 62).reshape(31, 2)):
        whole = InMemoryBackend(x, kernel).matvec(x[index], coef)
        for resident in (0, 2**30):
            backend = LocalBackend(Rows(x, 32), kernel, resident, rows_at_once=rows_at_once)
            pieces = GatheredRows(backend, index, rows_at_once)
            assert backend.matvec(pieces, coef).tobytes() == whole.tobytes()
            assert backend.gather(index).tobytes() == x[index].tobytes()
    backend = LocalBackend(Rows(x, 32), kernel, 2000, rows_at_once=rows_at_once)
    alpha = np.random.default_rng(2).dirichlet(np.ones(70))
    gradients = [
        Problem(served, y, 2.0, "fw", absolute(1e-5)).gradient(alpha)
        for served in (backend, InMemoryBackend(x, kernel))
    ]
    assert gradients[0].tobytes() == gradients[1].tobytes()


def test_a_hot_set_that_is_not_held_gives_the_same_columns() -> None:
    x, _ = random_problem(np.random.default_rng(0), 300, 9)
    index, slots = np.arange(0, 300, 2), np.array([2, 0, 1])
    held = InMemoryBackend(x[index], KERNELS[0])
    backend = LocalBackend(Rows(x, 64), KERNELS[0], 2000, rows_at_once=37)
    fetched = SubsetBackend(backend, index, KERNELS[0])
    assert fetched.gather(slots).tobytes() == held.gather(slots).tobytes()
    columns = [np.empty((3, 150), np.float32) for _ in range(2)]
    for served, out in zip((held, fetched), columns, strict=True):
        served.columns(x[5:8], out, slots)
    assert columns[0].tobytes() == columns[1].tobytes()
    sums = [served.matvec(x[5:8], np.array([1.0, -2.0, 3.0])) for served in (held, fetched)]
    assert sums[0].tobytes() == sums[1].tobytes()


class Held(InMemoryBackend):
    """Remembers the most that any of its kind has held, rows and panels."""

    largest = 0

    def __init__(self, rows: np.ndarray, kernel: Kernel, kernel_values: KernelCounter) -> None:
        super().__init__(rows, kernel, kernel_values)
        Held.largest = max(Held.largest, rows.nbytes + self._block.panels.nbytes)


@pytest.mark.parametrize("count", [2, 3])
def test_rows_that_do_not_fit_are_fetched_again(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And change no bit."""
    monkeypatch.setattr(block, "InMemoryBackend", Held)
    x, y = random_problem(np.random.default_rng(3), 200, 12)
    ends, largest = [], []
    for memory in (2**24, 2**14):
        Held.largest = 0
        backend = LocalBackend(Rows(x, 64), KERNELS[0], 0, rows_at_once=24)
        codes = np.arange(200) % count
        signs = [y] if count == 2 else [one_vs_rest_signs(codes, k) for k in range(count)]
        rule = absolute(1e-5 if count == 2 else 1e-3)
        problem = JointProblem([Problem(backend, each, 10.0, "fw", rule) for each in signs])
        joint = problem.start(0)
        for _ in BlockSchedule(problem, KERNELS[0], memory, 24).run(joint):
            pass
        largest.append(Held.largest)
        ends.append([(state.alpha.tobytes(), state.gradient.tobytes()) for state in joint.classes])
    assert 0 < largest[1] < 2**13 < largest[0]
    assert ends[0] == ends[1]


# A training that ends at once, with every pattern a support vector: the model and the gradient to
# be recomputed are as large as they get.
ALL_SUPPORT = """
import sys
import numpy as np
from bigsvm import cli, train
from bigsvm.solvers.problem import Problem
from bigsvm.solvers.state import SUPPORT, State

def start_at(self, initial, column):
    n = len(column)
    return State(np.full(n, 1 / n), np.zeros(n), np.full(n, SUPPORT, np.int8), 10, gap=1.0)

Problem.start_at = start_at
sys.exit(cli.run(train.main))
"""


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Stores of two and of five classes, 32 MB."""
    folder = tmp_path_factory.mktemp("wide")
    generator = np.random.default_rng(0)
    x = generator.standard_normal((8000, 1000), dtype=np.float32)
    stores = {}
    for classes in (2, 5):
        y = generator.integers(classes, size=len(x)).astype(np.int8)
        codes = 2 * y - 1 if classes == 2 else y
        stores[classes] = folder / f"{classes}.zarr"
        about = StoreMetadata(tuple(range(classes)))
        with StoreWriter(stores[classes], {"train": len(x)}, x.shape[1], about) as writer:
            writer.append("train", x, codes)
    return stores


@pytest.mark.parametrize(("classes", "schedule"), [(2, "exact"), (2, "block"), (5, "block")])
def test_memory_stays_under_the_least_limit(
    wide: dict[int, Path], classes: int, schedule: str, tmp_path: Path
) -> None:
    solver = {"schedule": schedule, "max_iterations": 10, "hot_set": 256}
    model = {"algorithm": "fw", "kernel": {"name": "rbf", "sigma": 40}}
    config = tmp_path / "c.yaml"
    content = {"data": {"train": str(wide[classes])}, "model": model, "solver": solver}
    config.write_text(yaml.safe_dump(content))

    def train(limit: str) -> "subprocess.CompletedProcess[str]":
        more = ["--run-dir", tmp_path / "run", "--set", f"solver.memory_limit={limit}"]
        return subprocess.run(
            [sys.executable, "-c", ALL_SUPPORT, config, *more],
            env=environment(threads=2),
            timeout=HANGS,
            stderr=subprocess.PIPE,
            text=True,
        )

    refused = train("1MiB")
    said = [line for line in refused.stderr.splitlines() if not line.startswith("compiling")]
    assert refused.returncode == 2 and len(said) == 1
    found = re.search(r"at least (\d+)MiB are needed", refused.stderr)
    assert found, refused.stderr
    done = train(f"{found[1]}MiB")
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["n_support"] == 8000
    state = (18 + 17) * 8000 * (1 if classes == 2 else classes)
    assert summary["peak_rss_bytes"] < int(found[1]) * 2**20 + state
