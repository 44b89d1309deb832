"""Bad input: data to train on, its weights, the run directory."""

import shutil

import numpy as np

from tests.support import bad_files as bad
from tests.support.bad_case import INF, NAN, Case, config


def arrays(words: str, **given: object) -> Case:
    files: dict[str, bad.Content] = {
        "c.yaml": bad.config(train="mine.h5"),
        "mine.h5": bad.arrays(**given),
    }
    return Case("train c.yaml", files, ("mine.h5", *words.split("|")) if words else ())


def weighted(words: str, model: str, weights: object = None, **files: bad.Content) -> Case:
    """A training on 12 rows of the user's own, which `weights` stand beside."""
    given: dict[str, bad.Content] = {
        "c.yaml": bad.config(train="mine.h5", model=f"{{kernel: {{gamma: 1}}, {model}}}"),
        "mine.h5": bad.arrays(w=weights),
    }
    given |= {name.replace("_", "."): content for name, content in files.items()}
    return Case("train c.yaml", given, tuple(words.split("|")) if words else ())


CASES: dict[str, Case] = {
    # Data to train on
    "train: a file of rows": Case(
        "train c.yaml",
        {"c.yaml": bad.config(train="good.csv")},
        ("good.csv", "bigsvm prepare"),
    ),
    "train: a folder": Case(
        "train c.yaml",
        {"c.yaml": bad.config(train="folder"), "folder/x": "1"},
        ("folder", "not a Zarr group"),
    ),
    "train: no such group": Case(
        "train c.yaml",
        {"c.yaml": bad.config(train="good.zarr/trian")},
        ("good.zarr", "'trian'", "train"),
    ),
    "train: no such group in HDF5": Case(
        "train c.yaml",
        {"c.yaml": bad.config(train="good.h5/trian")},
        ("good.h5", "'trian'", "train"),
    ),
    "train: test names no group": Case(
        "train c.yaml",
        {"c.yaml": bad.config(data="{train: good.zarr, test: good.zarr/tset}")},
        ("good.zarr", "'tset'", "test, train"),
    ),
    "train: test has other features": Case(
        "train c.yaml",
        {
            "c.yaml": bad.config(data="{train: good.zarr, test: mine.h5}"),
            "mine.h5": bad.arrays(X=np.ones((12, 7)), y=np.array([b"no", b"yes"] * 6)),
        },
        ("mine.h5", "7 features", "has 2"),
    ),
    "train: test has other classes": Case(
        "train c.yaml",
        {
            "c.yaml": bad.config(data="{train: good.zarr, test: mine.h5}"),
            "mine.h5": bad.arrays(X=np.ones((12, 2))),
        },
        ("mine.h5", "label", "'no'"),
    ),
    "train: no such array": Case(
        "train c.yaml",
        {"c.yaml": bad.config(train="{path: mine.h5, x: rows}"), "mine.h5": bad.arrays()},
        ("mine.h5", "no array 'rows'", "X, y"),
    ),
    "train: being written": Case(
        "train c.yaml",
        {"c.yaml": bad.config(train="new.zarr"), ".new.zarr.spill/x": "1"},
        ("new.zarr", "still being prepared", "prepare it again"),
    ),
    "train: cut HDF5": Case(
        "train c.yaml",
        {"c.yaml": bad.config(train="cut.h5"), "cut.h5": bad.copied("good.h5", bad.shortened)},
        ("cut.h5",),
    ),
    "train: another store in its place": Case(
        "train c.yaml",
        {
            "c.yaml": bad.config(data="{source: good.csv, train: s.zarr}"),
            "s.zarr": lambda path: shutil.copytree(path.parent / "good.h5.zarr", path),
        },
        ("s.zarr", "was made from", "good.csv"),
    ),
    "train: the smaller label is positive": Case(
        "train c.yaml", {"c.yaml": bad.config(train="{path: good.zarr, positive: 'no'}")}
    ),
    "arrays: NaN": arrays(
        "row 4, column 1|nan", X=np.where(np.arange(36).reshape(12, 3) == 13, NAN, 1)
    ),
    "arrays: infinite": arrays("row 0, column 0|inf", X=np.full((12, 3), -INF)),
    "arrays: too large for float32": arrays("row 0, column 0|float32", X=np.full((12, 3), 1e60)),
    "arrays: text": arrays("X holds|numbers", X=np.full((12, 3), b"one")),
    "arrays: one dimension": arrays("X has shape (12,)", X=np.ones(12)),
    "arrays: no rows": arrays("X is empty|(0, 3)", X=np.ones((0, 3)), y=np.ones(0)),
    "arrays: no features": arrays("X is empty|(12, 0)", X=np.ones((12, 0))),
    "arrays: labels too few": arrays("y has shape (11,)|12 rows", y=np.ones(11)),
    "arrays: one class": arrays("one class only", y=np.ones(12)),
    "arrays: labels -1, 0, 1": arrays("", y=np.arange(12) % 3 - 1),
    "arrays: a label for each row": arrays("12 different labels|12 rows|positive", y=np.arange(12)),
    "arrays: a label is NaN": arrays(
        "a label is nan", y=np.where(np.arange(12) == 3, NAN, np.arange(12) % 2)
    ),
    "arrays: complex": arrays("X holds complex", X=bad.ROWS * 1j),
    "arrays: one row": arrays("one class only", X=np.ones((1, 3)), y=np.ones(1)),
    "arrays: two rows": arrays("", X=np.array([[1.0], [2.0]]), y=np.array([0, 1])),
    "arrays: all rows equal": arrays("", X=np.ones((12, 3))),
    "arrays: a constant feature": arrays("", X=np.hstack([bad.ROWS, np.ones((12, 1))])),
    "arrays: labels as text": arrays("", y=np.array([b"ja", b"nein"] * 6)),
    "arrays: labels as a column": arrays("", y=bad.SIGNS[:, None]),
    # Weights
    "weights: none for wsvm": config(
        "model|wsvm needs `weights`", model="{algorithm: wsvm, kernel: {gamma: 1}}"
    ),
    "weights: of mfw": config(
        "model|mfw takes no `weights`|sample_weight", model="{weights: w, kernel: {gamma: 1}}"
    ),
    "weights: rounds of fw": config(
        "model|fw takes no `rounds`|rwsvm", model="{algorithm: fw, rounds: 3, kernel: {gamma: 1}}"
    ),
    "weights: no rounds": config(
        "model.rounds = 0", model="{algorithm: rwsvm, rounds: 0, kernel: {gamma: 1}}"
    ),
    "weights: unknown function": config(
        "model.reweight.function = 'exp'|'tanh'",
        model="{algorithm: rwsvm, reweight: {function: exp}, kernel: {gamma: 1}}",
    ),
    "weights: floor above ceiling": config(
        "model.reweight|floor must be below",
        model="{algorithm: rwsvm, reweight: {floor: 2}, kernel: {gamma: 1}}",
    ),
    "weights: intercept below 0": config(
        "model.intercept = -1|greater", model="{intercept: -1, kernel: {gamma: 1}}"
    ),
    "weights: unknown class weight": config(
        "model.class_weight = 'equal'|balanced", model="{class_weight: equal, kernel: {gamma: 1}}"
    ),
    "weights: class weight below 0": config(
        "model.class_weight.yes = -1|greater",
        model="{class_weight: {'yes': -1}, kernel: {gamma: 1}}",
    ),
    "weights: a class by number": config(
        "line 2|a key must be text|quotes", model="{class_weight: {1: 2}, kernel: {gamma: 1}}"
    ),
    "weights: no such class": weighted(
        "model.class_weight|'yes'|-1, 1", "class_weight: {'yes': 2}"
    ),
    "weights: class of weight 0": weighted("class -1|weight 0", "class_weight: {'-1': 0}"),
    "weights: no such array": weighted("mine.h5|no array 'v'|w", "sample_weight: v", np.ones(12)),
    "weights: no such file": weighted(
        "model.sample_weight = v.npy|no such", "sample_weight: v.npy"
    ),
    "weights: too few": weighted("w holds|(11,)|12 rows", "sample_weight: w", np.ones(11)),
    "weights: a table": weighted("w holds|(12, 2)", "sample_weight: w", np.ones((12, 2))),
    "weights: text": weighted("w holds", "sample_weight: w", np.full(12, b"one")),
    "weights: negative": weighted(
        "mine.h5/w|model.weights|row 3|-2",
        "algorithm: wsvm, weights: w",
        np.where(np.arange(12) == 3, -2, 1),
    ),
    "weights: NaN": weighted(
        "row 0|nan", "algorithm: rwsvm, weights: w", np.where(np.arange(12) == 0, NAN, 1)
    ),
    "weights: infinite": weighted(
        "row 11|inf", "sample_weight: w", np.where(np.arange(12) == 11, INF, 1)
    ),
    "weights: next to nothing": weighted("row 0|1e-200", "sample_weight: w", np.full(12, 1e-200)),
    "weights: all 0": weighted("mine.h5/w|all weights are 0", "sample_weight: w", np.zeros(12)),
    "weights: one class": weighted("class 1|weight 0", "sample_weight: w", bad.SIGNS < 0),
    "weights: binary": weighted("", "algorithm: wsvm, weights: w", np.arange(12) % 3 > 0),
    "weights: file too long": weighted(
        "w.npy|13 weights|12 rows", "sample_weight: w.npy", w_npy=bad.npy(np.ones(13))
    ),
    "weights: npy of objects": weighted("w.npy|NumPy", "sample_weight: w.npy", w_npy=bad.OBJECTS),
    "weights: npy cut": weighted(
        "w.npy|NumPy", "sample_weight: w.npy", w_npy=bad.npy(np.ones(12))[:-8]
    ),
    "weights: npz under the name of npy": weighted(
        "w.npy|npz|numpy.save", "sample_weight: w.npy", w_npy=bad.npz(w=np.ones(12))
    ),
    "weights: a word in a text": weighted(
        "w.txt|line 3|'two'", "sample_weight: w.txt", w_txt="1\n1\ntwo\n" + "1\n" * 9
    ),
    "weights: two numbers a line": weighted(
        "w.txt|2 columns", "sample_weight: w.txt", w_txt="1,2\n" * 12
    ),
    "weights: a text": weighted("", "sample_weight: w.txt", w_txt="0.5\n2\n" * 6),
    # The run directory
    "run: a file": Case("train good.yaml --run-dir good.csv", {}, ("good.csv", "run directory")),
    "run: of other data": Case(
        "train c.yaml --run-dir run",
        {"c.yaml": bad.config(train="good.h5.zarr")},
        ("run", "data.train was", "--run-dir"),
    ),
    "run: of another model": Case(
        "train good.yaml --run-dir run --set model.C=7",
        {},
        ("run", "C was 1.0 and is now 7.0"),
    ),
}
