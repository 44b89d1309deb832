"""What cannot be tuned is told in one line."""

from pathlib import Path

import h5py
import numpy as np
import pytest

from bigsvm import cli
from bigsvm.stores.store import open_dataset
from bigsvm.tune import main
from tests.support.tunings import command, config_for, made_store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_store(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def config(store: Path) -> Path:
    return config_for(store)


def test_a_fold_that_holds_all_the_weight_of_a_class_is_refused(
    config: Path, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    with open_dataset(store) as data:
        y = data.labels()
    weight = np.where(y > 0, 0.0, 1.0)
    weight[np.flatnonzero(y > 0)[0]] = 1.0
    np.save(tmp_path / "w.npy", weight)
    setting = f"model.sample_weight={tmp_path / 'w.npy'}"
    assert cli.run(main, command(config, tmp_path / "run", setting)) == 2
    said = capsys.readouterr().err
    assert "outside of fold" in said and "have the weight 0" in said and said.count("\n") == 1


def test_numbers_out_of_range_are_a_mistake(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    with h5py.File(tmp_path / "far.h5", "w") as file:
        file["X"] = np.random.default_rng(0).normal(size=(40, 3)) * 1e30
        file["y"] = np.arange(40) % 2
    settings = (f"data.train={tmp_path / 'far.h5'}", "model.kernel={name: linear}")
    assert cli.run(main, command(config, tmp_path / "run", *settings, "tune.sigma=null")) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "no step can be taken at C = 0.1" in said and "data.prepare.scaling" in said


BAD: dict[str, tuple[str, ...]] = {
    "tune.fold=3": ("unknown key 'tune.fold'", "did you mean 'folds'"),
    "tune.C=[]": ("--set tune.C", "at least 1"),
    "tune.C=[1, -2]": ("--set tune.C", "tune.C = -2", "greater than 0"),
    "tune.C=[1, 1.0]": ("tune.C", "1.0 is given twice"),
    "tune.C=[1, true]": ("tune.C", "true and false"),
    "tune.C={from: 1, till: 2}": ("tune.C", "{from: 1e-5, to: 1e5, count: 11}"),
    "tune.C={from: 0, to: 2, count: 3}": ("tune.C", "above 0"),
    "tune.algorithms=[svm]": ("tune.algorithms", "'fw' or 'mfw'"),
    "tune.folds=1": ("tune.folds = 1",),
    "tune.folds=200": ("tune.folds = 200", "the smallest class has", "at most"),
    "tune.subsample=3": ("tune.subsample = 3",),
    "tune.metric=f3": ("tune.metric",),
    "solver.memory_limit=1MiB": ("tune.subsample", "raise solver.memory_limit"),
    "solver.initial=250": ("solver.initial = 250",),
    "model.kernel={name: linear}": ("tune.sigma", "has no sigma"),
    "model.algorithm=rwsvm": ("model.algorithm = rwsvm", "only fw and mfw"),
    "model={algorithm: wsvm, weights: w.npy, kernel: {sigma: 1}}": ("model.algorithm = wsvm",),
    "model.class_weight={'7': 2}": ("model.class_weight: '7' is not a class",),
}


@pytest.mark.parametrize("setting", BAD)
def test_a_mistake_is_one_line_and_leaves_nothing(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture, setting: str
) -> None:
    assert cli.run(main, command(config, tmp_path / "new" / "run", setting)) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if "trainings of" not in line]
    assert len(lines) == 1, lines
    for word in ("error: ", *BAD[setting]):
        assert word in lines[0]
    assert not (tmp_path / "new").exists()
