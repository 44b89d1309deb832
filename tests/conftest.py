"""Fixtures shared by all tests."""

import os

# Tests run beside each other: threads that wait for work must leave the cores to those who have
# some. Set before anything loads the libraries that read this.
os.environ |= {"OMP_WAIT_POLICY": "passive", "OPENBLAS_NUM_THREADS": "1"}

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from trainings import EVERY, ROWS, TOLERANCE, Train, command, environment, summary, trainer

from bigsvm.config import PrepareOptions
from bigsvm.prepare import prepare


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data sets; tests that need it skip where it is not named."""
    folder = os.environ.get("BIGSVM_DATA")
    if not folder:
        pytest.skip("set BIGSVM_DATA to the folder of real data sets to run this test")
    return Path(folder)


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same data in several forms, and other data."""
    folder = tmp_path_factory.mktemp("stores")
    options = PrepareOptions(rows=ROWS, features=8, noise=0.3, scaling="standard")
    forms = {
        "chunks of 1000.zarr": {"chunk_rows": 1000},
        "chunks of 8192.zarr": {"chunk_rows": 8192},
        "chunks of 500.h5": {"chunk_rows": 500},
        "other data.zarr": {"seed": 1},
    }
    for name, changes in forms.items():
        prepare("synthetic", folder / name, options.model_copy(update=changes))
    return {Path(name).stem: folder / name for name in forms}


@pytest.fixture(scope="session")
def config(stores: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "test.yaml"
    values = {
        "data": {"train": str(stores["chunks of 1000"])},
        "model": {"C": 10, "kernel": {"name": "rbf", "sigma": 1.0}},
        "solver": {"schedule": "exact", "absolute_tolerance": TOLERANCE, "threads": 1},
        "run": {"snapshot_every": EVERY, "checkpoint_every": 150},
    }
    path.write_text(yaml.safe_dump(values))
    return path


@pytest.fixture(scope="session")
def train(config: Path) -> Train:
    return trainer(config)


@pytest.fixture
def start(config: Path) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Start a training, to be disturbed."""
    started = []

    def start(run_dir: Path, *arguments: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            command(config, run_dir, *arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def straight(train: Train, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nothing disturbs: what all others are compared to. Not to be changed."""
    run_dir = tmp_path_factory.mktemp("runs") / "straight"
    train(run_dir)
    assert summary(run_dir)["status"] == "converged"
    assert summary(run_dir)["iterations"] > 2400, "others stop on the way"
    return run_dir


@pytest.fixture(scope="session")
def halfway_once(train: Train, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("halfway") / "halfway"
    train(run_dir, "solver.max_iterations=1500")
    return run_dir


@pytest.fixture
def halfway(halfway_once: Path, tmp_path: Path) -> Path:
    """A run that stopped at iteration 1,500, with checkpoints there and at 1,350."""
    return Path(shutil.copytree(halfway_once, tmp_path / "halfway"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of half a megabyte."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=500k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("only root may mount a small file system")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
