"""Snapshots are written piece by piece: their support vectors may be more than memory holds."""

from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bigsvm.backends.in_memory import InMemoryBackend
from bigsvm.backends.local import LocalBackend
from bigsvm.config import PrepareOptions
from bigsvm.core.errors import UserError
from bigsvm.kernels import Kernel
from bigsvm.models.model import Model, load_model
from bigsvm.preparation.pipeline import prepare
from bigsvm.stores.fingerprint import verified_fingerprint
from bigsvm.stores.store import open_dataset
from bigsvm.training import snapshots
from bigsvm.training.snapshots import SnapshotWriter
from tests.support.small_run import make_store

KERNEL = Kernel("rbf", 0.5)
CHUNK = 64


class Watched(InMemoryBackend):
    """Remembers which rows it was asked for."""

    asked: list[np.ndarray]

    def gather(self, indices: np.ndarray) -> np.ndarray:
        self.asked.append(indices)
        return super().gather(indices)


@pytest.mark.parametrize("support", [np.arange(0, 600, 7), np.arange(600)])
def test_in_pieces_the_bytes_are_those_of_the_whole(
    support: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "_CHUNK_BYTES", 10 * 5 * 4)  # ten rows
    coef = np.linspace(-1, 1, len(support))
    state: Any = SimpleNamespace(iteration=300, n_working=400)
    problem: Any = SimpleNamespace(
        coefficients=lambda _: (support, coef[None]), intercept=0.0, n_outputs=1
    )
    with open_dataset(make_store(tmp_path / "s.zarr")) as data:
        rows = data.read(0, data.n)
        backend = Watched(rows, KERNEL)
        backend.asked = []
        factory = SnapshotWriter(data, backend, asdict(KERNEL), {"algorithm": "mfw"})
        factory.save(state, problem, tmp_path / "pieces", 0.25)
        whole = Model(
            rows[support], coef, support, asdict(KERNEL), data.classes, data.scaling,
            load_model(tmp_path / "pieces").about,
        )  # fmt: skip
    assert whole.margin == 0.25
    chunks = np.concatenate([np.unique(indices // CHUNK) for indices in backend.asked])
    assert chunks.tolist() == np.unique(support // CHUNK).tolist(), "none is read twice"
    assert all(len(indices) <= 10 + CHUNK for indices in backend.asked)
    whole.save(tmp_path / "whole")
    assert (tmp_path / "pieces").read_bytes() == (tmp_path / "whole").read_bytes()


def test_the_last_model_is_not_made_of_rows_that_have_changed(tmp_path: Path) -> None:
    """A few rows are read by themselves, unchecked; and after the last model comes no pass."""
    options = PrepareOptions(rows=600, features=5, chunk_rows=200, compression="none")
    prepare("synthetic", tmp_path / "s.zarr", options)
    support, coef = np.array([7, 390]), np.ones(2)
    state: Any = SimpleNamespace(iteration=300, n_working=400)
    problem: Any = SimpleNamespace(
        coefficients=lambda _: (support, coef[None]), intercept=0.0, n_outputs=1
    )
    with open_dataset(tmp_path / "s.zarr") as data:
        verified_fingerprint(data)
        backend = LocalBackend(data, KERNEL, 0)
        factory = SnapshotWriter(data, backend, asdict(KERNEL), {"algorithm": "mfw"})
        factory.save(state, problem, tmp_path / "model", 0.25, is_last=True)
        chunk = tmp_path / "s.zarr" / "train" / "X" / "c" / "1" / "0"
        rows = np.fromfile(chunk, np.float32)
        rows[190 * 5] += 1
        rows.tofile(chunk)
        with pytest.raises(UserError, match="rows 200 to 400 are not what they were"):
            factory.save(state, problem, tmp_path / "changed", 0.25, is_last=True)
    assert not (tmp_path / "changed").exists()


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("part", ["dual_coef", "intercept", "support_vectors"])
def test_a_model_that_is_not_finite_replaces_no_other(
    value: float, part: str, tmp_path: Path
) -> None:
    parts: dict[str, Any] = {
        "support_vectors": np.ones((2, 3), np.float32),
        "dual_coef": np.array([0.5, -0.5]),
        "intercept": 0.0,
    }

    def model(**changes: Any) -> Model:
        index = np.arange(2)
        return Model(
            **(parts | changes), support_index=index, kernel=asdict(KERNEL), classes=(0, 1)
        )

    path = tmp_path / "model.safetensors"
    model().save(path)
    before = path.read_bytes()
    changed = parts[part] * np.float32(1) + np.array(value, np.float32)
    with pytest.raises(UserError, match="is not finite"):
        model(**{part: float(value) if part == "intercept" else changed}).save(path)
    assert path.read_bytes() == before
    assert [found.name for found in tmp_path.iterdir()] == [path.name]
