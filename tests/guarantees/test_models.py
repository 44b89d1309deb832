"""Guarantees 5 and 6: models are data and need nothing else; the end is verified."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bigsvm import load_model
from bigsvm.config import PrepareOptions
from bigsvm.core.errors import UserError
from bigsvm.preparation.pipeline import prepare
from bigsvm.stores.store import open_dataset
from tests.support.trainings import TOLERANCE, Train, environment, summary

USE = """
import sys, json
import numpy as np
import bigsvm
model = bigsvm.load_model("m.safetensors")
rows = np.load("rows.npy")
np.save("decision.npy", model.decision_function(rows))
json.dump([model.predict(rows).tolist(), sorted(sys.modules)], open("out.json", "w"))
"""


def test_a_model_needs_neither_data_nor_dask(straight: Path, tmp_path: Path) -> None:
    shutil.copy(straight / "model.safetensors", tmp_path / "m.safetensors")
    rows = np.random.default_rng(0).normal(size=(50, 8))
    np.save(tmp_path / "rows.npy", rows)
    subprocess.run([sys.executable, "-c", USE], cwd=tmp_path, check=True, env=environment())
    predicted, modules = json.loads((tmp_path / "out.json").read_text())
    unwanted = {"dask", "distributed", "zarr", "h5py", "sklearn", "pyarrow", "pydantic"}
    assert not unwanted & set(modules)
    model = load_model(tmp_path / "m.safetensors")
    assert model.scaling is not None
    x = model.scaling.apply(rows).astype(np.float64)
    distance = ((x[:, None, :] - model.support_vectors[None].astype(np.float64)) ** 2).sum(axis=2)
    expected = np.exp(-distance / 2) @ model.dual_coef
    np.testing.assert_allclose(np.load(tmp_path / "decision.npy"), expected, rtol=0, atol=1e-9)
    assert predicted == np.where(expected >= 0, 1, -1).tolist()


def test_rows_that_are_not_finite_are_refused(straight: Path) -> None:
    model = load_model(straight / "model.safetensors")
    rows = np.zeros((3, 8))
    rows[1, 2] = np.nan
    with pytest.raises(UserError, match="row 1, column 2"):
        model.predict(rows)


def test_the_summary_tells_the_true_gap(straight: Path, stores: dict[str, Path]) -> None:
    told = summary(straight)
    assert told["status"] == "converged"
    assert told["gap"] <= TOLERANCE
    assert told["true_gap"] <= TOLERANCE
    assert 0 <= told["drift"] < 1e-12
    # The same from nothing but the model and the data, in plain numpy.
    model = load_model(straight / "model.safetensors")
    with open_dataset(stores["chunks of 1000"]) as data:
        x, y = data.read(0, data.n).astype(np.float64), data.labels().astype(np.float64)
    squares = (x**2).sum(axis=1)
    kernel = np.exp(-(squares[:, None] + squares - 2 * x @ x.T) / 2)
    alpha = np.zeros(len(y))
    alpha[model.support_index] = model.dual_coef * y[model.support_index]
    assert (alpha[model.support_index] > 0).all()
    assert alpha.sum() == pytest.approx(1, abs=1e-12)
    gradient = y * (kernel @ (alpha * y)) + alpha / 10
    assert told["objective"] == pytest.approx(alpha @ gradient / 2, rel=1e-5)
    assert model.margin == pytest.approx(alpha @ gradient, rel=1e-5)
    support = gradient[alpha > 0]
    assert support.max() - support.min() <= told["true_gap"] + 1e-8
    assert told["n_support"] == len(support)
    assert model.about["n_working"] == told["n_working"] >= len(support)


def test_a_real_data_set_with_a_test_set(train: Train, data_dir: Path, tmp_path: Path) -> None:
    store = tmp_path / "sonar.zarr"
    prepare(data_dir / "sonar.all-data", store, PrepareOptions(scaling="minmax", test_rows=60))
    sets = (f"data.train={store}", f"data.test={store}/test", "solver.absolute_tolerance=1e-8")
    train(tmp_path / "run", *sets)
    told = summary(tmp_path / "run")
    assert told["true_gap"] <= 1e-8
    assert told["accuracy"] > 0.75
    model = load_model(tmp_path / "run" / "model.safetensors")
    with open_dataset(store, "test") as test:
        right = model.decision_function(test.read(0, 60), scaled=True) * test.labels() >= 0
    assert told["accuracy"] == pytest.approx(right.mean())
    assert str(data_dir) not in json.dumps(dict(model.about)), "a model says not where it was made"


def test_a_kernel_too_narrow_is_told(train: Train, tmp_path: Path) -> None:
    said = train(tmp_path / "run", "model.kernel={name: rbf, sigma: 0.001}").stderr
    assert "the kernel is too narrow" in said
