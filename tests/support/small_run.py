"""A store and the snapshots of a run on it, made directly: fast, and known to the bit."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from bigsvm.config import PrepareOptions
from bigsvm.models.model import Model
from bigsvm.preparation.pipeline import prepare
from bigsvm.stores.store import open_dataset
from tests.support.trainings import REPOSITORY, environment, run_quickly


def make_store(path: Path, rows: int = 900, **options: Any) -> Path:
    """Synthetic data of 5 features, a third of it for testing, in chunks of 64 rows."""
    given = {"features": 5, "test_fraction": 1 / 3, "chunk_rows": 64, "scaling": "standard"}
    prepare("synthetic", path, PrepareOptions(rows=rows, **{**given, **options}))
    return path


def make_model(store: Path, iteration: int, n_support: int, **changes: Any) -> Model:
    """A kernel density classifier on the rows of a seeded choice that grows with `n_support`."""
    with open_dataset(store) as data:
        index = np.sort(np.random.default_rng(0).permutation(data.n)[:n_support]).astype(np.int64)
        coef = data.labels()[index] * np.random.default_rng(iteration).uniform(0.5, 1, n_support)
        model = {
            "support_vectors": data.gather(index),
            "dual_coef": coef / n_support,
            "support_index": index,
            "kernel": {"name": "rbf", "gamma": 2.0},
            "classes": data.classes,
            "scaling": data.scaling,
            "about": {"iteration": iteration, "n_working": 2 * n_support, "fingerprint": "f"},
        }
        return Model(**{**model, **changes})


def make_run(
    folder: Path, store: Path, snapshots: dict[int, int], final: tuple[int, int] | None = None
) -> Path:
    """A run directory with snapshots {iteration: n_support} and perhaps a final model."""
    (folder / "snapshots").mkdir(parents=True)
    write_config(folder, {"test": str(store / "test")})
    for iteration, n_support in snapshots.items():
        add_snapshot(folder, store, iteration, n_support)
    if final:
        make_model(store, *final).save(folder / "model.safetensors")
    return folder


def add_snapshot(folder: Path, store: Path, iteration: int, n_support: int) -> Path:
    path = folder / "snapshots" / f"model-{iteration:08d}.safetensors"
    make_model(store, iteration, n_support).save(path)
    return path


def write_config(folder: Path, data: dict[str, Any]) -> None:
    (folder / "config.yaml").write_text(yaml.safe_dump({"data": data}))


def write_summary(folder: Path, status: str) -> None:
    (folder / "summary.json").write_text(json.dumps({"status": status}))


def start(module: str, *arguments: object) -> "subprocess.Popen[str]":
    """Start `python -m module arguments` for real."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1"},
        # A shell's background job, and so its tests, would pass an ignored Ctrl-C on.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def run(module: str, *arguments: object) -> tuple[int, str, str]:
    """Run a command in a process of its own to its end: (exit code, stdout, stderr)."""
    done = run_quickly([sys.executable, "-m", module, *map(str, arguments)], environment())
    return done.returncode, done.stdout, done.stderr
