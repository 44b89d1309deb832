"""`BigSVC` on data that stays where it is: the same bits as in memory, and no copy."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe
import h5py
import numpy as np
import pandas as pd
import pytest
import zarr
from sklearn.datasets import load_svmlight_file
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from bigsvm import BigSVC
from bigsvm.config import PrepareOptions
from bigsvm.models.model import load_model
from bigsvm.preparation.pipeline import prepare
from bigsvm.stores.store import open_dataset
from tests.support.trainings import HANGS, environment

FITTED = ("support_", "support_vectors_", "dual_coef_", "n_iter_", "gap_", "classes_")
Given = tuple[np.ndarray, np.ndarray]


@pytest.fixture(scope="module")
def german(data_dir: Path) -> Given:
    X, y = load_svmlight_file(str(data_dir / "german.numer"))
    return StandardScaler().fit_transform(X.toarray()).astype(np.float32)[:400], y[:400]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that 400 rows are several chunks, and many hot sets."""
    monkeypatch.setattr("bigsvm.stores.rows.CHUNK_BYTES", 60 * 24 * 4)
    monkeypatch.setattr("bigsvm.estimator.out_of_core.CHUNK_BYTES", 60 * 24 * 4)
    monkeypatch.setattr("bigsvm.estimator.options.HOT_SET", 16)


def zarr_array(X: np.ndarray, folder: Path, **options: Any) -> zarr.Array:
    return zarr.create_array(folder / "x.zarr", data=X, **options)


def hdf5_dataset(X: np.ndarray, folder: Path, **options: Any) -> h5py.Dataset:
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("X", data=X, **options)
    return h5py.File(folder / "x.h5")["X"]


def memory_map(X: np.ndarray, folder: Path, dtype: str, order: Any) -> np.memmap:
    mapped = np.memmap(folder / "x", dtype, "w+", shape=X.shape, order=order)
    mapped[:] = X
    return mapped


UNEVEN = (1, 90, 20, 89, 90, 30, 80)
FORMS: dict[str, Callable[[np.ndarray, Path], Any]] = {
    "dask": lambda X, folder: da.from_array(X, (75, 24)),
    "dask in uneven pieces": lambda X, folder: da.from_array(
        X, ((1, 90, 20, 89, 90, 30, 80), (10, 14))
    ),
    "dask, float64": lambda X, folder: da.from_array(X.astype(float), (40, 24)),
    "dask over zarr": lambda X, folder: da.from_zarr(zarr_array(X, folder, chunks=(60, 24))),
    "zarr": lambda X, folder: zarr_array(X, folder, chunks=(70, 24)),
    "zarr, plain": lambda X, folder: zarr_array(X, folder, chunks=(70, 24), compressors=None),
    "zarr 2, float64": lambda X, folder: zarr_array(
        X.astype(float), folder, chunks=(50, 24), zarr_format=2
    ),
    "zarr in memory": lambda X, folder: zarr.array(X, chunks=(7, 24)),
    "hdf5": lambda X, folder: hdf5_dataset(X, folder),
    "hdf5, gzip": lambda X, folder: hdf5_dataset(X, folder, chunks=(70, 24), compression="gzip"),
    "memory map": lambda X, folder: memory_map(X, folder, "f4", "C"),
    "memory map, columns": lambda X, folder: memory_map(X, folder, "f8", "F"),
}


def assert_same(model: BigSVC, other: BigSVC) -> None:
    for name in FITTED:
        assert getattr(model, name).tobytes() == getattr(other, name).tobytes(), name
    assert model.n_features_in_ == other.n_features_in_ and model.status_ == other.status_


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_same_bits_as_in_memory(form: str, german: Given, tmp_path: Path) -> None:
    X, y = german
    outside = FORMS[form](X, tmp_path)
    for options in ({"schedule": "exact", "max_iter": 12}, {"schedule": "block", "max_iter": 60}):
        inside = BigSVC(C=2, **options).fit(X, y)
        # So little memory that some chunks are read again on every pass.
        model = BigSVC(C=2, memory_limit="145kB", **options).fit(outside, y)
        assert_same(model, inside)
        decision = inside.decision_function(X)
        assert model.decision_function(outside).tobytes() == decision.tobytes()
    assert (model.predict(outside) == inside.predict(X)).all()
    assert model.score(outside, y) == inside.score(X, y)


def test_three_classes_and_labels_outside(tmp_path: Path, data_dir: Path) -> None:
    table = pd.read_csv(data_dir / "iris.data", header=None)
    X, y = table[[0, 1, 2, 3]].to_numpy(), table[4].to_numpy(str)
    inside = BigSVC(C=10).fit(X, y)
    for labels in (da.from_array(y, 40), zarr.array(y), y.tolist()):
        model = BigSVC(C=10).fit(da.from_array(X, (40, 2)), labels)
        assert_same(model, inside)
        assert model.score(X, y) > 0.95


class Counted:
    """Rows that count how often each is read.

    Like a file, and unlike a numpy array: of those dask takes slices by itself, past any counter.
    """

    ndim = 2

    def __init__(self, X: np.ndarray) -> None:
        self._X, self.shape, self.dtype = X, X.shape, X.dtype
        self.reads = np.zeros(len(X), int)
        self.most = 0  # at a time

    def __getitem__(self, where: Any) -> np.ndarray:
        rows = self._X[where]
        self.reads[where[0]] += 1  # dask's threads read different rows
        self.most = max(self.most, len(rows))
        return rows


@pytest.mark.parametrize("schedule", ["exact", "block"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_rows_of_dask_are_read_by_chunks_and_kept_while_they_fit(
    schedule: str, german: Given
) -> None:
    X, y = german
    svc = BigSVC(schedule=schedule, max_iter=60, gamma=0.1)
    for limit, fits in (("1MiB", True), ("145kB", False)):
        source = Counted(X)
        outside = da.from_array(source, (75, 24))
        source.reads[:] = 0  # dask had a look at its type
        svc.set_params(memory_limit=limit).fit(outside, y)
        assert source.most == 75
        # Once to look whether they can be trained on, once to keep; the last chunk on every pass.
        assert (source.reads[:375] == 2).all()
        assert (source.reads[375:] == 2).all() if fits else (source.reads[375:] > 4).all()
        source.reads[:] = 0
        svc.decision_function(outside)
        assert (source.reads == 1).all() and source.most == 75


MEASURED = """
import sys
import dask.array as da, h5py, numpy as np, zarr
import bigsvm.estimator.options
from bigsvm.backends.memory import peak_resident_set, resident_set
bigsvm.estimator.options.HOT_SET = 64
from bigsvm import BigSVC

def fit(X, y):
    svc = BigSVC(gamma=1e-3, schedule="block", max_iter=50, memory_limit="128MiB")
    return svc.fit(X, y).decision_function(X)

small = np.random.default_rng(0).normal(size=(2000, 400)).astype(np.float32)
for X in (small, da.from_array(small, (500, 400))):
    fit(X, np.arange(2000) % 2)  # compiled, imported
X = zarr.open_array(sys.argv[1], mode="r")
if sys.argv[2] == "dask":
    X = da.from_zarr(X)
y = np.arange(X.shape[0]) % 2
before = resident_set()
assert np.isfinite(fit(X, y)).all()
print(peak_resident_set() - before)
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "x.zarr"
    chunk = np.random.default_rng(0).standard_normal((5000, 400), dtype=np.float32)
    array = zarr.create_array(path, shape=(200_000, 400), chunks=chunk.shape, dtype="f4")
    for start in range(0, 200_000, 5000):
        array[start : start + 5000] = chunk
    return path


@pytest.mark.parametrize("kind", ["zarr", "dask"])
def test_memory_is_bounded(kind: str, large: Path) -> None:
    """320 MB of data, 128 MiB for rows and kernel values, and some bytes a row."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", MEASURED, large, kind],
        env=environment(threads=2), check=True, capture_output=True, text=True, timeout=HANGS,
    )  # fmt: skip
    assert 20e6 < int(done.stdout) < 128 * 2**20 + 200_000 * 120


@pytest.fixture(scope="module")
def store(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "magic.zarr"
    options = PrepareOptions(scaling="standard", test_fraction=0.9, chunk_rows=300)
    prepare(data_dir / "magic04.data", path, options)
    return path


def rows_and_labels(store: Path, part: str) -> Given:
    with open_dataset(store / part) as data:
        return data.read(0, data.n), np.array(data.classes)[(data.labels() > 0).astype(int)]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_store_by_its_path(store: Path) -> None:
    inside = BigSVC(C=10, max_iter=300).fit(*rows_and_labels(store, "train"))
    X, y = rows_and_labels(store, "test")
    decision = inside.decision_function(X).tobytes()
    for given in (store, str(store), f"file://{store}", {"path": store}):
        model = BigSVC(C=10, max_iter=300, memory_limit="1MB").fit(given)
        assert_same(model, inside)
        assert model.classes_.tolist() == ["g", "h"]
        assert model.decision_function(given).tobytes() == decision
        assert model.score(given) == inside.score(X, y) > 0.7


def test_a_model_of_a_store_takes_raw_rows(store: Path, data_dir: Path, tmp_path: Path) -> None:
    model = BigSVC(C=10).fit(store)
    model.to_model().save(tmp_path / "m.safetensors")
    saved = load_model(tmp_path / "m.safetensors")
    raw = pd.read_csv(data_dir / "magic04.data", header=None)
    right = (saved.predict(raw[list(range(10))].to_numpy()) == raw[10]).mean()
    assert right == pytest.approx(model.score(store), abs=0.01)


def test_names_of_features_come_with_the_store(tmp_path: Path, data_dir: Path) -> None:
    table = pd.read_csv(data_dir / "sonar.all-data", header=None)
    table.columns = [f"band {k}" for k in range(60)] + ["class"]
    table.to_csv(tmp_path / "s.csv", index=False)
    table[[*table.columns[59::-1], "class"]].to_csv(tmp_path / "other.csv", index=False)
    options = PrepareOptions(test_fraction=0.2, scaling="none")
    for name in ("s", "other"):
        prepare(tmp_path / f"{name}.csv", tmp_path / f"{name}.zarr", options)
    model = BigSVC(C=10).fit(tmp_path / "s.zarr")
    assert model.feature_names_in_.tolist() == table.columns[:60].tolist()
    assert model.to_model().about["feature_names"] == table.columns[:60].tolist()
    assert model.score(table[table.columns[:60]], table["class"]) > 0.9
    with pytest.raises(ValueError, match="feature names differ from those of the training"):
        model.predict(tmp_path / "other.zarr")
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.predict(table[table.columns[:60]].to_numpy())
    model.fit(da.from_array(np.eye(6)), np.arange(6) % 2)
    assert not hasattr(model, "feature_names_in_")


def test_arrays_of_the_users_own(german: Given, tmp_path: Path) -> None:
    X, y = german
    with h5py.File(tmp_path / "mine.h5", "w") as file:
        file["rows"], file["truth"] = X, np.where(y > 0, "good", "bad").astype("S")
    inside = BigSVC().fit(X, np.where(y > 0, "good", "bad"))
    mine = {"path": tmp_path / "mine.h5", "x": "rows", "y": "truth"}
    assert_same(BigSVC().fit(mine), inside)
    assert BigSVC().fit(mine).score(mine) == inside.score(X, np.where(y > 0, "good", "bad"))
    other = BigSVC().fit(mine, y)
    assert_same(other, BigSVC().fit(X, y))


def test_an_hdf5_file_that_is_being_written(german: Given, tmp_path: Path) -> None:
    X, y = german
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("X", data=np.zeros_like(X), chunks=(100, 24))
        file.flush()
        file["X"][:] = X  # in memory, perhaps not in the file
        assert_same(BigSVC().fit(file["X"], y), BigSVC().fit(X, y))


def test_in_a_pipeline(german: Given) -> None:
    X, y = german
    double = make_pipeline(FunctionTransformer(lambda X: 2 * X), BigSVC())
    outside = da.from_array(X, (200, 24))
    assert double.fit(outside, y).score(outside, y) == double.fit(X, y).score(X, y)


def test_data_that_changes_meanwhile_is_noticed(german: Given) -> None:
    X, y = german
    array = zarr.array(X, chunks=(60, 24))

    def change(progress: Any) -> None:
        array[399, 3] = 7.0

    model = BigSVC(schedule="block", tol=1e-9, callback=change, memory_limit="100kB")
    with pytest.raises(ValueError, match="are not what they were when this began"):
        model.fit(array, y)


def failing(block: np.ndarray) -> np.ndarray:
    raise RuntimeError("the disk is gone")


NAN = np.where(np.eye(9, 4) > 0, np.nan, 1.0)
WRONG = {
    "1-d": (lambda: da.zeros(9), "Expected 2D array"),
    "empty": (lambda: zarr.zeros((0, 4)), "empty"),
    "unknown size": (lambda: da.ones((9, 4))[da.ones(9) > 0], "compute_chunk_sizes"),
    "data frame": (
        lambda: dask.dataframe.from_pandas(pd.DataFrame(np.eye(9, 4))),
        r"to_dask_array\(lengths=True\)",
    ),
    "group": (lambda: zarr.group(), "zarr Group, not an array"),
    "delayed": (lambda: dask.delayed(np.eye)(9), "dask Delayed, not an array"),
    "complex": (lambda: da.ones((9, 4), dtype=complex), "not of real numbers"),
    "not a number": (lambda: zarr.array(NAN, chunks=(2, 4)), "row 0, column 0"),
    "too large": (lambda: da.full((9, 4), 1e60), "row 0, column 0"),
    "fails": (lambda: da.ones((9, 4)).map_blocks(failing, meta=np.ones((1, 1))), "disk is gone"),
    "rows": (lambda: da.ones((8, 4)), r"inconsistent numbers of samples: \[8, 9\]"),
    "path": (lambda: "/no/such/store.zarr", "there is no such store"),
    "key": (lambda: {"file": "a.h5"}, "data set key 'file' is not known"),
}


@pytest.mark.parametrize("name", WRONG)
def test_mistakes_are_told_in_one_line(name: str) -> None:
    make, said = WRONG[name]
    with pytest.raises(ValueError, match=said) as mistake:
        BigSVC().fit(make(), np.arange(9) % 2)
    assert "\n" not in str(mistake.value)


def test_mistakes_with_labels_and_with_other_rows(store: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="requires y to be passed"):
        BigSVC().fit(da.ones((9, 4)))
    with pytest.raises(ValueError, match="one class only"):
        BigSVC().fit(da.ones((9, 4)), np.ones(9))
    with pytest.raises(ValueError, match=r"memory_limit = 0 MiB is too small for X: at least"):
        BigSVC(memory_limit="1kB").fit(da.ones((9, 4)), np.arange(9) % 2)
    model = BigSVC(max_iter=20).fit(store)
    with pytest.raises(ValueError, match="X has 4 features, but BigSVC is expecting 10"):
        model.predict(da.ones((9, 4)))
    prepare("synthetic", tmp_path / "s.zarr", PrepareOptions(rows=100, features=10))
    with pytest.raises(ValueError, match="was not scaled like the training rows"):
        model.predict(tmp_path / "s.zarr")
