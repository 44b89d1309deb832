"""Stores, runs and model files of more than two classes: what they keep, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigsvm import cli
from bigsvm.config import PrepareOptions
from bigsvm.core.errors import UserError
from bigsvm.core.labels import one_vs_rest_signs
from bigsvm.files.checked_tensors import read_tensors, write_tensors
from bigsvm.models.model import Model, load_model
from bigsvm.predict import predict
from bigsvm.preparation.pipeline import prepare
from bigsvm.stores.fingerprint import verified_fingerprint
from bigsvm.stores.store import open_dataset
from tests.support.class_problems import write_csv
from tests.support.trainings import Train, everything, one_line, summary


def three(path: Path, labels: list[Any], name: str = "t.csv") -> Path:
    x = np.random.default_rng(0).normal(size=(len(labels), 2))
    return write_csv(path / name, x, labels)


@pytest.mark.parametrize("suffix", ["zarr", "h5"])
def test_stores_keep_codes_and_labels(suffix: str, tmp_path: Path) -> None:
    labels = ["c", "a", "b", "a", "c", "b", "a", "a"]
    store = tmp_path / f"s.{suffix}"
    told = str(prepare(three(tmp_path, labels), store))
    assert "a 4, b 2, c 2" in told
    with open_dataset(store) as data:
        assert data.classes == ("a", "b", "c")
        assert data.labels().tolist() == [2, 0, 1, 0, 2, 1, 0, 0]
        assert data.labels().dtype == np.int8
        fingerprint = verified_fingerprint(data)
    with open_dataset(store, classes=("c", "b", "x", "a")) as data:
        assert data.labels().tolist() == [0, 3, 1, 3, 0, 1, 3, 3]
    with open_dataset({"path": store, "positive": "b"}) as data:
        assert data.classes == ("rest", "b")
        np.testing.assert_array_equal(data.labels(), [-1, -1, 1, -1, -1, 1, -1, -1])
        assert verified_fingerprint(data) != fingerprint
    with pytest.raises(UserError, match=r"its classes .* are not \('a', 'b'\)"):
        open_dataset(store, classes=("a", "b"))


def test_more_classes_than_a_byte_has_room_for(tmp_path: Path) -> None:
    labels = [i % 300 for i in range(900)]
    prepare(three(tmp_path, labels), tmp_path / "s.zarr")
    with open_dataset(tmp_path / "s.zarr") as data:
        assert data.labels().dtype == np.int16
        assert data.labels().tolist() == labels
        verified_fingerprint(data)


def test_a_lost_label_chunk_is_noticed(tmp_path: Path) -> None:
    prepare(three(tmp_path, list("abcabcabc")), tmp_path / "s.zarr")
    (tmp_path / "s.zarr" / "train" / "y" / "c" / "0").unlink()
    with pytest.raises(UserError, match=r"label -1 in row 0 .* is not from 0 to 2"):
        open_dataset(tmp_path / "s.zarr").labels()


def test_a_store_of_a_later_version_is_refused(tmp_path: Path) -> None:
    import zarr

    prepare(three(tmp_path, list("abcabcabc")), tmp_path / "s.zarr")
    zarr.open_group(tmp_path / "s.zarr" / "train").attrs["bigsvm_format"] = "bigsvm store 3"
    with pytest.raises(UserError, match=r"'bigsvm store 3', of another version"):
        open_dataset(tmp_path / "s.zarr")


def test_mistakes_in_the_classes_of_data(tmp_path: Path) -> None:
    source = three(tmp_path, list("abcabcabc"))
    strange = three(tmp_path, list("abx"), "test.csv")
    with pytest.raises(UserError, match=r"test.csv: label 'x' is none of the 3 classes"):
        prepare(source, tmp_path / "s.zarr", test_file=strange)
    rare = three(tmp_path, [*"aaaabbbb", "c"], "rare.csv")
    for seed in range(20):  # until the only c is chosen for testing
        options = PrepareOptions(test_rows=4, seed=seed)
        try:
            prepare(rare, tmp_path / "rare.zarr", options, overwrite=True)
        except UserError as refusal:
            assert "no training row has the label 'c'" in str(refusal)
            break
    else:
        pytest.fail("a class without training rows was not noticed")


def test_a_class_of_one_pattern_trains(train: Train, tmp_path: Path) -> None:
    prepare(three(tmp_path, [*"aaaabbbb", "c"]), tmp_path / "s.zarr")
    train(tmp_path / "run", f"data.train={tmp_path / 's.zarr'}")
    assert summary(tmp_path / "run")["status"] == "converged"
    with open_dataset(tmp_path / "s.zarr") as data:
        model = load_model(tmp_path / "run" / "model.safetensors")
        assert model.predict(data.read(8, 9), scaled=True).tolist() == ["c"]


def test_a_test_set_with_an_unknown_class_is_refused_before_training(
    train: Train, tmp_path: Path
) -> None:
    prepare(three(tmp_path, list("abcabcabc")), tmp_path / "s.zarr")
    prepare(three(tmp_path, list("abdabdabd"), "u.csv"), tmp_path / "u.zarr")
    sets = (f"data.train={tmp_path / 's.zarr'}", f"data.test={tmp_path / 'u.zarr/train'}")
    line = one_line(train(tmp_path / "run", *sets, code=2))
    assert "u.zarr" in line and "'d'" in line
    assert not (tmp_path / "run").exists()


def test_going_on_with_other_classes_is_refused(train: Train, tmp_path: Path) -> None:
    """The same rows, two classes then and three now."""
    store = tmp_path / "s.zarr"
    prepare(three(tmp_path, list("abcabcabc")), store)
    train(tmp_path / "run", f"data.train={{path: '{store}', positive: b}}")
    before = everything(tmp_path / "run")
    assert "data.train.positive was" in one_line(
        train(tmp_path / "run", f"data.train={store}", code=2)
    )
    assert everything(tmp_path / "run") == before


def test_weights_and_an_intercept_in_a_run(train: Train, tmp_path: Path) -> None:
    prepare(three(tmp_path, list("abcabcabcabb")), tmp_path / "s.zarr")
    here = (f"data.train={tmp_path / 's.zarr'}", "model.intercept=1")
    train(tmp_path / "plain", *here)
    train(tmp_path / "run", *here, "model.class_weight={c: 10}")
    plain, weighted = (
        load_model(tmp_path / name / "model.safetensors") for name in ("plain", "run")
    )
    assert len(weighted.intercept) == 3 and weighted.intercept != plain.intercept
    with open_dataset(tmp_path / "s.zarr") as data:
        rows = data.read(0, data.n)
    found = [(model.predict(rows, scaled=True) == "c").sum() for model in (plain, weighted)]
    assert found[1] >= max(3, found[0])
    refusal = one_line(train(tmp_path / "r", here[0], "model.algorithm=rwsvm", code=2))
    assert "rwsvm" in refusal and "positive" in refusal


@pytest.mark.parametrize(
    "change",
    [
        {"classes": ["a", "b"]},
        {"classes": ["a", "b", "c", "d"]},
        {"classes": ["a", "b", "b"]},
        {"classes": ["a", "b", {}]},
        {"format": "bigsvm model 1"},
        {"format": "bigsvm model 2"},
        {"intercept": [0.0, 1.0]},
        {"intercept": [0.0, 1.0, float("nan")]},
        {"intercept": 1.0},
    ],
    ids=str,
)
def test_models_that_make_no_sense(change: dict[str, Any], tmp_path: Path) -> None:
    coef = np.ones((3, 2))
    good = Model(np.eye(2, dtype=np.float32), coef, np.arange(2), {"name": "rbf"}, ("a", "b", "c"))
    good.save(tmp_path / "m.safetensors")
    assert load_model(tmp_path / "m.safetensors").classes == ("a", "b", "c")
    arrays, about = read_tensors(tmp_path / "m.safetensors")
    assert about["format"] == "bigsvm model 3"
    write_tensors(tmp_path / "m.safetensors", arrays, about | change)
    with pytest.raises(UserError, match="not a valid model"):
        load_model(tmp_path / "m.safetensors")


def test_signs_of_a_class() -> None:
    assert one_vs_rest_signs(np.array([2, 0, 1], np.int16), 1).tolist() == [-1, -1, 1]


@pytest.mark.parametrize("suffix", ["zarr", "h5"])
def test_a_class_that_is_called_rest_is_no_stand_in(suffix: str, tmp_path: Path) -> None:
    train = three(tmp_path, ["rest", "walk"] * 20)
    jump = three(tmp_path, ["jump"] * 4, "jump.csv")
    store = tmp_path / f"s.{suffix}"
    with pytest.raises(UserError, match=r"jump.csv: label 'jump' is neither 'rest' nor 'walk'"):
        prepare(train, store, test_file=jump)
    prepare(train, store)
    config = tmp_path / "c.yaml"
    config.write_text(f"data: {{train: '{store}'}}\nmodel: {{kernel: {{sigma: 1}}}}\n")
    assert cli.main(["train", str(config), "--run-dir", str(tmp_path / "run")]) == 0
    with pytest.raises(UserError, match=r"jump.csv: label 'jump' is neither 'rest' nor 'walk'"):
        predict(tmp_path / "run" / "model.safetensors", jump, tmp_path / "o.csv")


def test_a_positive_class_that_is_called_rest(tmp_path: Path) -> None:
    many = three(tmp_path, ["rest", "walk", "jump"] * 3)
    with pytest.raises(UserError, match=r"positive label 'rest' .* rename it"):
        prepare(many, tmp_path / "s.zarr", PrepareOptions(positive="rest"))
    prepare(many, tmp_path / "s.zarr", PrepareOptions(positive="walk"))
    with open_dataset({"path": tmp_path / "s.zarr", "positive": "walk"}) as data:
        assert data.labels().tolist() == [-1, 1, -1] * 3
