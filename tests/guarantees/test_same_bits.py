"""Guarantee 1: the same bits, whatever the store, the memory and the threads."""

import json
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from bigsvm import load_model
from bigsvm.stores.store import open_dataset
from tests.support.trainings import (
    Train,
    assert_same_run,
    command,
    environment,
    final,
    one_line,
    snapshot,
)


@pytest.mark.parametrize("form", ["chunks of 8192", "chunks of 500"])
def test_same_bits_whatever_the_form_of_the_store(
    train: Train, straight: Path, stores: dict[str, Path], tmp_path: Path, form: str
) -> None:
    train(tmp_path / "run", f"data.train={stores[form]}")
    assert_same_run(tmp_path / "run", straight)


def test_same_bits_from_arrays_of_the_users_own(
    train: Train, straight: Path, stores: dict[str, Path], tmp_path: Path
) -> None:
    with open_dataset(stores["chunks of 1000"]) as data:
        rows, labels = data.read(0, data.n), data.labels()
    with h5py.File(tmp_path / "mine.h5", "w") as file:
        file["features"] = rows.astype(np.float64)
        file["kind"] = np.where(labels > 0, 7, 3)
    mine = f"{{path: {tmp_path / 'mine.h5'}, x: features, y: kind}}"
    train(tmp_path / "run", f"data.train={mine}", "solver.max_iterations=600")
    model = load_model(tmp_path / "run" / "model.safetensors")
    same = load_model(straight / "snapshots" / "model-00000600.safetensors")
    assert model.dual_coef.tobytes() == same.dual_coef.tobytes()
    assert model.support_index.tobytes() == same.support_index.tobytes()
    assert model.support_vectors.tobytes() == same.support_vectors.tobytes()
    assert model.classes == (3, 7)
    assert str(tmp_path) not in json.dumps(dict(model.about)), "a model says not where it was made"


def test_same_bits_with_memory_for_some_columns(
    train: Train, straight: Path, tmp_path: Path
) -> None:
    refusal = one_line(train(tmp_path / "run", "solver.memory_limit=1MiB", code=2))
    assert "solver.memory_limit = 1 MiB is too small" in refusal
    enough = refusal.split("at least ")[1].split()[0]
    train(tmp_path / "run", f"solver.memory_limit={enough}", "solver.max_iterations=1200")
    assert final(tmp_path / "run") == snapshot(straight, 1200)


INSTRUMENTED = """
import sys
import numba
from bigsvm import cli, train
from bigsvm.backends import memory
from bigsvm.solvers import column_cache, exact

exact._WORTH_THREADS = 0  # use them for few patterns too
resident, columns = int(sys.argv.pop(1)), int(sys.argv.pop(1))
if columns:
    memory.plan_memory = lambda limit, data, *rest, **more: memory.MemoryPlan(
        resident, columns * 4 * data.n, 24
    )

steps, threads = exact.steps, set()
def watched(*arguments):
    threads.add(numba.get_num_threads())
    return steps(*arguments)
exact.steps = watched

make, sizes = column_cache.ColumnCache.__init__, set()
def made(self, *arguments):
    make(self, *arguments)
    sizes.add(len(self.columns))
column_cache.ColumnCache.__init__ = made
code = cli.run(train.main)
print("capacity", *sizes, "threads", *threads)
sys.exit(code)
"""


def train_instrumented(
    train_command: list[str], resident: int = 0, columns: int = 0, threads: int = 1
) -> str:
    """Train with this much memory and this many cores; return the result."""
    done = subprocess.run(
        [sys.executable, "-c", INSTRUMENTED, str(resident), str(columns), *train_command[3:]],
        capture_output=True,
        text=True,
        env=environment(threads),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_same_bits_with_memory_for_hardly_anything(
    config: Path, straight: Path, tmp_path: Path
) -> None:
    """One chunk of three stays in memory, and two columns of 3000."""
    asked = command(config, tmp_path / "run", "solver.max_iterations=300")
    assert train_instrumented(asked, 40_000, 2).startswith("capacity 2 ")
    assert final(tmp_path / "run") == snapshot(straight, 300)


def test_same_bits_with_two_threads(config: Path, straight: Path, tmp_path: Path) -> None:
    sets = ("solver.threads=2", "solver.max_iterations=300")
    asked = command(config, tmp_path / "run", *sets)
    assert train_instrumented(asked, threads=2).endswith("threads 2")
    assert final(tmp_path / "run") == snapshot(straight, 300)


def test_threads_bound_every_part(config: Path, tmp_path: Path) -> None:
    sets = ("solver.threads=1", "solver.max_iterations=5")
    asked = command(config, tmp_path / "run", *sets)
    assert train_instrumented(asked, threads=2).endswith("threads 1")
