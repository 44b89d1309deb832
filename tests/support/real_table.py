"""A real table with named columns: MAGIC's gamma telescope, under UCI's own names."""

from pathlib import Path

import pandas as pd
import yaml

from bigsvm import cli

NAMES = [
    "fLength", "fWidth", "fSize", "fConc", "fConc1", "fAsym", "fM3Long", "fM3Trans", "fAlpha",
    "fDist",
]  # fmt: skip


def magic_table(data_dir: Path, rows: int, seed: int = 0) -> pd.DataFrame:
    """Rows chosen by a seed, features first and `class` (g or h) last."""
    table = pd.read_csv(data_dir / "magic04.data", names=[*NAMES, "class"])
    return table.sample(rows, random_state=seed).reset_index(drop=True)


def command(*arguments: object) -> None:
    """Run `bigsvm ...` in this process, to a good end."""
    assert cli.main([str(argument) for argument in arguments]) == 0


def train_on(table: pd.DataFrame, folder: Path, **solver: object) -> Path:
    """Prepare a table, a quarter of it for testing, and train on it: the run directory."""
    table.to_csv(folder / "table.csv", index=False)
    command(
        "prepare", folder / "table.csv", folder / "table.zarr", "--label-column", "class",
        "--scaling", "standard", "--test-fraction", 0.25, "--quiet",
    )  # fmt: skip
    values = {
        "data": {"train": str(folder / "table.zarr"), "test": str(folder / "table.zarr/test")},
        "model": {"C": 10, "kernel": {"name": "rbf", "sigma": 2.0}},
        "solver": {"threads": 1, **solver},
        "run": {"snapshot_every": 400},
    }
    (folder / "table.yaml").write_text(yaml.safe_dump(values))
    command("train", folder / "table.yaml", "--run-dir", folder / "run")
    return folder / "run"
