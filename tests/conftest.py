"""Fixtures shared by all tests."""

import os

# Tests run side by side: waiting threads must not spin. Set before any library reads it.
os.environ |= {"OMP_WAIT_POLICY": "passive", "OPENBLAS_NUM_THREADS": "1"}

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from bigsvm.config import PrepareOptions
from bigsvm.preparation.pipeline import prepare
from tests.support.compile_all import compile_all
from tests.support.once import made_once
from tests.support.trainings import (
    EVERY,
    ROWS,
    TOLERANCE,
    Train,
    command,
    environment,
    summary,
    trainer,
)


def pytest_configure(config: pytest.Config) -> None:
    """Have xdist take the files in their order.

    By itself it begins with those of the most tests: the slow ones, of one or two tests each, would
    come last, with one worker busy and the others done.
    """
    config.option.loadscopereorder = False


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile once, before the workers of xdist start: each of them would compile the same."""
    if session.config.getoption("numprocesses", None) and not hasattr(
        session.config, "workerinput"
    ):
        compile_all()


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what its place or its fixtures tell; the slow tests first."""
    for item in items:
        if item.path.parent.name == "slow":
            item.add_marker("slow")
        if "data_dir" in getattr(item, "fixturenames", ()):
            item.add_marker("data")
    items.sort(key=lambda item: item.path.parent.name != "slow")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data sets; tests that need it are skipped without."""
    folder = os.environ.get("BIGSVM_DATA")
    if not folder:
        pytest.skip("set BIGSVM_DATA to the folder of real data sets to run this test")
    return Path(folder)


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same data in several forms, and other data."""
    options = PrepareOptions(rows=ROWS, features=8, noise=0.3, scaling="standard")
    forms = {
        "chunks of 1000.zarr": {"chunk_rows": 1000},
        "chunks of 8192.zarr": {"chunk_rows": 8192},
        "chunks of 500.h5": {"chunk_rows": 500},
        "other data.zarr": {"seed": 1},
    }

    def make(folder: Path) -> None:
        for name, changes in forms.items():
            prepare("synthetic", folder / name, options.model_copy(update=changes))

    folder = made_once(tmp_path_factory, "stores", make)
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
    """The undisturbed run that all others are compared to. Not to be changed."""

    def make(folder: Path) -> None:
        train(folder / "run")
        assert summary(folder / "run")["status"] == "converged"
        assert summary(folder / "run")["iterations"] > 2400, "others stop on the way"

    return made_once(tmp_path_factory, "straight", make) / "run"


@pytest.fixture(scope="session")
def halfway_once(train: Train, tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(folder: Path) -> None:
        train(folder / "run", "solver.max_iterations=1500")

    return made_once(tmp_path_factory, "halfway", make) / "run"


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
