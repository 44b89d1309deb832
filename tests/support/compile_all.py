"""Compile what nearly all tests need: run once, before the workers of xdist start."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from tests.support.trainings import environment

FILES = {"rows.csv": "1,2,a\n3,4.5e1,b\n", "rows.libsvm": "+1 1:2 2:3\n-1 2:3.5e1\n"}


def compile_solvers() -> None:
    """The RBF kernel, steps and both schedules by very small trainings, then the other kernels."""
    from bigsvm.kernels import Kernel, warm_up
    from scripts.reliability.fork_server import load_everything

    load_everything()
    for name in ("laplacian", "linear", "poly"):
        warm_up(Kernel(name, 0.5))


def compile_readers() -> None:
    """The parsers by files of two rows; then steps with weights, and those of `tune`."""
    from bigsvm import BigSVC, cli
    from bigsvm.preparation.pipeline import prepare

    with tempfile.TemporaryDirectory() as name:
        for file, text in FILES.items():
            path = Path(name, file)
            path.write_text(text)
            prepare(str(path), path.with_suffix(f"{path.suffix}.zarr"))
        config = Path(name, "tune.yaml")
        values = {
            "data": {"source": "synthetic", "prepare": {"rows": 60}, "train": f"{name}/s.zarr"},
            "model": {"kernel": {"sigma": 1}},
            "tune": {"C": [1], "sigma": [1], "folds": 2},
        }
        config.write_text(json.dumps(values))  # JSON is YAML
        cli.main(["tune", str(config), "--run-dir", f"{name}/run", "--quiet"])
    x = np.random.default_rng(0).standard_normal((200, 3)).astype(np.float32)
    for schedule in ("exact", "block"):
        BigSVC(schedule=schedule).fit(x, x[:, 0] > 0, sample_weight=np.arange(200))


def compile_all() -> None:
    """Both, in two processes; numba's cache keeps what is compiled."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import {part}; {part}()"], env=environment()
        )
        for part in (compile_solvers.__name__, compile_readers.__name__)
    ]
    assert [process.wait() for process in processes] == [0, 0]
