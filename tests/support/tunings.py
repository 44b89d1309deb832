"""A small tuning: its data, its config and its command."""

from pathlib import Path

import yaml

from bigsvm import cli
from bigsvm.config import PrepareOptions
from bigsvm.preparation.pipeline import prepare
from bigsvm.tune import main

SIGMAS, CS = [0.5, 2.0], [0.1, 1.0, 1000.0]


def made_store(folder: Path) -> Path:
    """301 patterns of two classes."""
    options = PrepareOptions(rows=301, features=4, noise=0.3, scaling="standard", seed=3)
    prepare("synthetic", folder / "data.zarr", options)
    return folder / "data.zarr"


def config_for(store: Path) -> Path:
    """The config, beside the store."""
    path = store.parent / "my.yaml"
    values = {
        "data": {"train": str(store)},
        "model": {"kernel": {"name": "rbf", "gamma": 1.0}},
        "solver": {"initial": 2, "absolute_tolerance": 1e-5},
        "tune": {"C": CS, "sigma": SIGMAS, "algorithms": ["fw", "mfw"], "folds": 3, "seed": 5},
    }
    path.write_text(yaml.safe_dump(values))
    return path


def command(config: Path, run_dir: Path, *arguments: str) -> list[str]:
    """Arguments of the command; those with an = in them are for --set."""
    sets = [part for text in arguments if "=" in text for part in ("--set", text)]
    return [str(config), "--run-dir", str(run_dir), *sets, *(a for a in arguments if "=" not in a)]


def tune(config: Path, run_dir: Path, *arguments: str) -> None:
    assert cli.run(main, command(config, run_dir, *arguments)) == 0
