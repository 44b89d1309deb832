"""Exported models, run by ONNX Runtime and by LIBSVM, decide as ours do."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from libsvm import svmutil

from bigsvm.core.errors import UserError
from bigsvm.core.scaling import Scaling
from bigsvm.export import export, main
from bigsvm.models import onnx_graph
from bigsvm.models.model import Model, load_model
from tests.support import small_run
from tests.support.small_run import make_model, make_store

KERNELS: dict[str, dict[str, Any]] = {
    "rbf": {"name": "rbf", "gamma": 0.7},
    # ONNX Runtime drops a factor that is 1 in float32; in float64 these need not be.
    "rbf, 2 gamma about 1": {"name": "rbf", "gamma": 0.5},
    "rbf, gamma about 1": {"name": "rbf", "gamma": 1.0},
    "laplacian": {"name": "laplacian", "gamma": 3.0},
    "laplacian, gamma about 1": {"name": "laplacian", "gamma": 1.0},
    "linear": {"name": "linear"},
    "poly": {"name": "poly", "gamma": 0.4, "coef0": 1.1, "degree": 3},
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("export") / "s.zarr", rows=900, clip=2.5)


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    """Raw rows: among them, near, far out, and farther out than any kernel reaches."""
    random = np.random.default_rng(0)
    rows = random.normal(size=(700, 5)) * 1.3
    rows[:20] *= 1e3
    rows[20:24] *= 1e30
    return rows


def exported(model: Model, out: Path) -> Path:
    model.save(out.with_name("m.safetensors"))
    export(out.with_name("m.safetensors"), out, overwrite=True)
    return out


def by_onnx(path: Path, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    session = onnxruntime.InferenceSession(path)
    label, decision = session.run(["label", "decision"], {"X": rows})
    return label, decision


def by_libsvm(path: Path, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    model = svmutil.svm_load_model(str(path))
    labels, _, values = svmutil.svm_predict([], rows.astype(np.float64), model, "-q")
    return np.array(labels, int), np.array(values)[:, 0]


def size(model: Model, rows: np.ndarray) -> float:
    """What the terms of a decision value add up to: the measure of its rounding."""
    positive = Model(
        np.abs(model.support_vectors), np.abs(model.dual_coef), model.support_index,
        {**model.kernel, "coef0": abs(model.kernel.get("coef0", 0))}, model.classes,
    )  # fmt: skip
    scaled = model.scaling.apply(rows) if model.scaling else rows
    return max(1.0, float(positive.decision_function(np.abs(scaled), scaled=True).max()))


@pytest.mark.parametrize("intercept", [0.0, 0.01])
@pytest.mark.parametrize("kernel", KERNELS)
def test_onnx_decides_as_the_model_does(
    store: Path, rows: np.ndarray, tmp_path: Path, kernel: str, intercept: float
) -> None:
    model = make_model(store, 1, 300, kernel=KERNELS[kernel], intercept=intercept)
    label, decision = by_onnx(exported(model, tmp_path / "m.onnx"), rows)
    np.testing.assert_array_equal(label, model.predict(rows))
    assert set(label) == {-1, 1} or intercept
    bound = size(model, rows)
    np.testing.assert_allclose(decision, model.decision_function(rows), rtol=0, atol=1e-6 * bound)
    precise = model.decision_function(rows, precise=True)
    np.testing.assert_allclose(decision, precise, rtol=0, atol=1e-12 * bound)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_far_out_patterns_near_each_other_do_not_cancel(tmp_path: Path, kernel: str) -> None:
    """Rows a million from the origin and one from another: |x|^2 has no digit for that."""
    random = np.random.default_rng(1)
    vectors = (1e6 + random.integers(-8, 8, (60, 4)) / 8).astype(np.float32)
    coef = random.normal(size=60) / 60
    model = Model(vectors, coef, np.arange(60), KERNELS[kernel], (0, 1))
    rows = 1e6 + random.integers(-8, 8, (200, 4)) / 8
    _, decision = by_onnx(exported(model, tmp_path / "m.onnx"), rows)
    assert np.abs(decision).max() > 1e-2
    np.testing.assert_allclose(decision, model.decision_function(rows), rtol=0, atol=1e-6)


def test_rows_beyond_every_kernel_value_get_the_label_of_the_model(tmp_path: Path) -> None:
    """exp underflows there; ours stops at 2^-126, and so must the graph: its sign decides."""
    vectors = np.zeros((3, 2), np.float32)
    model = Model(vectors, np.array([0.2, -0.5, 0.2]), np.arange(3), KERNELS["rbf"], (0, 1))
    rows = np.full((4, 2), 1e6)
    label, decision = by_onnx(exported(model, tmp_path / "m.onnx"), rows)
    assert model.predict(rows).tolist() == label.tolist() == [0] * 4
    np.testing.assert_allclose(decision, model.decision_function(rows), rtol=1e-6)


def test_any_number_of_rows_in_blocks(
    store: Path, rows: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(store, 1, 100)
    monkeypatch.setattr(onnx_graph, "BLOCK_BYTES", 8 * 100 * 7)  # seven rows
    path = exported(model, tmp_path / "m.onnx")
    for count in (0, 1, 6, 7, 8, 15, 700):
        label, decision = by_onnx(path, rows[:count])
        assert label.shape == decision.shape == (count,)
        expected = model.decision_function(rows[:count])
        np.testing.assert_allclose(decision, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("classes", "kind"),
    [((3, 7), "int64"), (("b", "g"), "object"), ((0.5, 1.5), "float64"), (("rest", 2), "object")],
)
def test_labels_are_the_original_ones(
    store: Path, rows: np.ndarray, tmp_path: Path, classes: tuple, kind: str
) -> None:
    model = make_model(store, 1, 50, classes=classes)
    label, _ = by_onnx(exported(model, tmp_path / "m.onnx"), rows)
    assert label.dtype == kind
    assert label.tolist() == model.predict(rows).tolist()
    assert len(set(label)) == 2


def test_onnx_says_where_it_came_from(store: Path, tmp_path: Path) -> None:
    about = {"C": 2.5, "algorithm": "mfw", "source": "mine.csv", "fingerprint": "f"}
    model = make_model(store, 1, 50, about=about)
    made = onnx.load(exported(model, tmp_path / "m.onnx"))
    assert made.producer_name == "bigsvm"
    facts = {fact.key: fact.value for fact in made.metadata_props}
    assert facts["C"] == "2.5" and facts["source"] == "mine.csv"
    assert json.loads(facts["kernel"]) == model.kernel
    before = (tmp_path / "m.onnx").read_bytes()
    assert exported(model, tmp_path / "m.onnx").read_bytes() == before


@pytest.mark.parametrize("kernel", ["rbf", "linear", "poly"])
@pytest.mark.parametrize(
    ("classes", "intercept"), [((-1, 1), 0.0), ((1, -1), 0.01), ((4, 2), -1.0)]
)
def test_libsvm_decides_as_the_model_does(
    store: Path, rows: np.ndarray, tmp_path: Path, kernel: str, classes: tuple, intercept: float
) -> None:
    model = make_model(store, 1, 300, kernel=KERNELS[kernel], classes=classes, intercept=intercept)
    path = exported(model, tmp_path / "m.model")
    beside = json.loads((tmp_path / "m.model.json").read_text())
    assert "labels" not in beside
    scaled = Scaling.from_json(beside["scaling"]).apply(rows)
    label, decision = by_libsvm(path, scaled)
    bound = size(model, rows)
    precise = model.decision_function(rows, precise=True)
    np.testing.assert_allclose(decision, precise, rtol=0, atol=1e-12 * bound)
    np.testing.assert_allclose(decision, model.decision_function(rows), rtol=0, atol=1e-6 * bound)
    np.testing.assert_array_equal(label, model.predict(rows))


def test_libsvm_without_scaling_needs_no_second_file(store: Path, tmp_path: Path) -> None:
    model = make_model(store, 1, 50)
    exported(model, tmp_path / "m.model")
    assert (tmp_path / "m.model.json").exists()
    plain = make_model(store, 1, 50, scaling=None)
    exported(plain, tmp_path / "m.model")
    assert not (tmp_path / "m.model.json").exists()
    random = np.random.default_rng(0).normal(size=(20, 5)).astype(np.float32)
    label, _ = by_libsvm(tmp_path / "m.model", random)
    np.testing.assert_array_equal(label, plain.predict(random))


def test_libsvm_labels_that_are_words_are_told_beside(store: Path, tmp_path: Path) -> None:
    model = make_model(store, 1, 50, classes=("bad", "good"), scaling=None)
    exported(model, tmp_path / "m.model")
    named = json.loads((tmp_path / "m.model.json").read_text())["labels"]
    random = np.random.default_rng(0).normal(size=(50, 5)).astype(np.float32)
    label, _ = by_libsvm(tmp_path / "m.model", random)
    assert [named[str(value)] for value in label] == model.predict(random).tolist()


def test_mistakes_are_told_and_nothing_is_left(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "m.safetensors"
    make_model(store, 1, 20, kernel=KERNELS["laplacian"]).save(file)

    def refused(model: Path, out: Path) -> str:
        with pytest.raises(UserError) as mistake:
            main([str(model), str(out)])
        assert "\n" not in str(mistake.value)
        assert {path.name for path in tmp_path.iterdir()} <= {"m.safetensors", "there.onnx"}
        return str(mistake.value)

    assert "laplacian" in refused(file, tmp_path / "m.model")
    assert ".onnx" in refused(file, tmp_path / "m.pmml")
    assert "no folder" in refused(file, tmp_path / "no" / "m.onnx")
    assert "no such file" in refused(tmp_path / "none.safetensors", tmp_path / "m.onnx")
    (tmp_path / "there.onnx").write_text("precious")
    assert "--overwrite" in refused(file, tmp_path / "there.onnx")
    assert (tmp_path / "there.onnx").read_text() == "precious"
    assert main([str(file), str(tmp_path / "there.onnx"), "--overwrite"]) == 0


def test_a_trained_model_as_a_command(straight: Path, stores: dict, tmp_path: Path) -> None:
    """From a real run, through real processes: every training row decided the same."""
    from bigsvm.stores.store import open_dataset

    for name in ("m.onnx", "m.model"):
        code, out, err = small_run.run(
            "bigsvm", "export", straight / "model.safetensors", tmp_path / name
        )
        assert (code, err) == (0, "") and str(tmp_path / name) in out
    model = load_model(straight / "model.safetensors")
    with open_dataset(stores["chunks of 1000"]) as data:
        scaled = data.read(0, data.n)
    assert model.scaling is not None
    raw = scaled.astype(np.float64) * model.scaling.scale + model.scaling.offset
    label, decision = by_onnx(tmp_path / "m.onnx", raw)
    np.testing.assert_array_equal(label, model.predict(raw))
    np.testing.assert_allclose(decision, model.decision_function(raw), rtol=0, atol=1e-7)
    label, decision = by_libsvm(tmp_path / "m.model", scaled)
    np.testing.assert_array_equal(label, model.predict(scaled, scaled=True))
    precise = model.decision_function(scaled, scaled=True, precise=True)
    np.testing.assert_allclose(decision, precise, rtol=0, atol=1e-12)
