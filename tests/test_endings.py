"""How trainings begin again and end: nothing is mixed up, and nothing that was done is lost."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import yaml
from trainings import everything

from bigsvm import cli, load_model
from bigsvm.preparation.options import PrepareOptions
from bigsvm.prepare import prepare

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3)).astype(np.float32)
SIDE = (X[:, 0] * X[:, 1] + 0.3 * RNG.normal(size=120) > 0).astype(int)


def arrays(path: Path, labels: Any = (0, 1), x: np.ndarray = X) -> Path:
    path.unlink(missing_ok=True)
    with h5py.File(path, "w") as file:
        file["X"], file["y"] = x, np.array(labels)[SIDE[: len(x)]]
    return path


def config(folder: Path, data: dict[str, Any], **sections: Any) -> Path:
    path = folder / "c.yaml"
    values: dict[str, Any] = {
        "data": data,
        "model": {"C": 10, "kernel": {"name": "rbf", "sigma": 1.0}},
        "solver": {"max_iterations": 50, "threads": 1},
        "run": {"dir": str(folder / "run"), "snapshot_every": 20},
    }
    path.write_text(yaml.safe_dump(values | sections))
    return path


def test_renamed_classes_are_another_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The content was the same, and so later snapshots had other classes than earlier ones."""
    store = arrays(tmp_path / "s.h5", (b"cat", b"dog"))
    path = str(config(tmp_path, {"train": str(store)}))
    assert cli.main(["train", path]) == 0
    before = everything(tmp_path / "run")
    arrays(tmp_path / "s.h5", (b"no", b"yes"))
    capsys.readouterr()
    more = ["train", path, "--set", "solver.max_iterations=80"]
    assert cli.main(more) == 2
    said = capsys.readouterr().err
    assert "classes was ['cat', 'dog'] and is now ['no', 'yes']" in said
    assert said.count("\n") == 1
    assert everything(tmp_path / "run") == before
    arrays(tmp_path / "s.h5", (b"cat", b"dog"))
    assert cli.main(more) == 0
    assert load_model(tmp_path / "run" / "model.safetensors").classes == ("cat", "dog")


def test_renamed_features_are_another_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(f"{k},{k % 5},{k % 2}\n" for k in range(40))
    path = str(config(tmp_path, {"train": str(tmp_path / "s.zarr")}))
    for names, code in (("a,b", 0), ("a,c", 2)):
        (tmp_path / "s.csv").write_text(f"{names},class\n{rows}")
        prepare(tmp_path / "s.csv", tmp_path / "s.zarr", PrepareOptions(), overwrite=True)
        capsys.readouterr()
        assert cli.main(["train", path, "--set", "solver.max_iterations=5"]) == code
    assert "feature names was" in capsys.readouterr().err
