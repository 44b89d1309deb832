"""The table of bad input: see test_bad_input.

A case is a command line, the files it needs besides the good ones, and the words its one line on
stderr must have: the file or option, the place in it, and what to do. A case without words is one
that looks odd and has to work.
"""

import shutil
from typing import NamedTuple

import bad_files as bad
import numpy as np

NAN, INF = float("nan"), float("inf")


class Case(NamedTuple):
    command: str
    files: dict[str, bad.Content] = {}  # noqa: RUF012
    words: tuple[str, ...] = ()


def config(words: str, **sections: str) -> Case:
    return Case("train c.yaml", {"c.yaml": bad.config(**sections)}, ("c.yaml", *words.split("|")))


def config_text(words: str, text: str | bytes) -> Case:
    return Case("train c.yaml", {"c.yaml": text}, ("c.yaml", *words.split("|")))


def setting(words: str, text: str) -> Case:
    return Case(f"train good.yaml --set {text}", {}, tuple(words.split("|")))


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


def read(words: str, name: str, content: bad.Content, options: str = "") -> Case:
    said = (name, *words.split("|")) if words else ()
    return Case(f"prepare '{name}' new.zarr {options}", {name: content}, said)


def model(words: str, content: bad.Content) -> Case:
    said = ("m.safetensors", *words.split("|"))
    return Case("predict m.safetensors good.zarr out.csv", {"m.safetensors": content}, said)


CASES: dict[str, Case] = {
    # The config
    "config: not there": Case("train none.yaml", {}, ("none.yaml", "cannot be read")),
    "config: a folder": Case("train good.zarr", {}, ("good.zarr", "cannot be read")),
    "config: empty": config_text("is not a config|data, model", ""),
    "config: a list": config_text("is not a config", "- data\n- model\n"),
    "config: binary": config_text("is not YAML", b"\x89PNG\r\n\x1a\n\0\0\0\xff"),
    "config: a tab": config_text("line 2, column 1|\\t", "data:\n\ttrain: good.zarr\n"),
    "config: a key twice": config_text(
        "line 5|'model' is given twice", bad.config("\nmodel: {C: 2}\n")
    ),
    "config: unknown section": config("unknown key 'solvr'|'solver'", solvr="{}"),
    "config: unknown key": config(
        "unknown key 'solver.tolerence'|'tolerance'", solver="{tolerence: 1e-3}"
    ),
    "config: no data": config_text("'data' is missing", "model: {kernel: {gamma: 1}}\n"),
    "config: nothing to train on": config("data: give `source`", data="{}"),
    "config: code": config_text("line 1", "data: !!python/object/apply:os.system [touch pwned]\n"),
    "config: C negative": config(
        "model.C = -1|greater than 0", model="{C: -1, kernel: {gamma: 1}}"
    ),
    "config: C text": config("model.C = 'big'|number", model="{C: big, kernel: {gamma: 1}}"),
    "config: C nan": config("model.C = nan|finite", model="{C: .nan, kernel: {gamma: 1}}"),
    "config: C true": config("model.C|true and false", model="{C: yes, kernel: {gamma: 1}}"),
    "config: sigma 0": config(
        "model.kernel.sigma = 0|greater than 0", model="{kernel: {sigma: 0}}"
    ),
    "config: sigma and gamma": config(
        "model.kernel|not both", model="{kernel: {sigma: 1, gamma: 1}}"
    ),
    "config: no width": config("model.kernel|needs sigma or gamma", model="{kernel: {name: rbf}}"),
    "config: unknown kernel": config(
        "model.kernel.name = 'rbff'|'rbf'", model="{kernel: {name: rbff, sigma: 1}}"
    ),
    "config: degree 0": config(
        "model.kernel.degree = 0|greater", model="{kernel: {name: poly, degree: 0}}"
    ),
    "config: no algorithm": config(
        "model.algorithm = 'smo'|'mfw'", model="{algorithm: smo, kernel: {gamma: 1}}"
    ),
    "config: tolerance 0": config("solver.tolerance = 0|greater than 0", solver="{tolerance: 0}"),
    "config: half an iteration": config(
        "solver.max_iterations = 1.5|integer", solver="{max_iterations: 1.5}"
    ),
    "config: no iterations": config("solver.max_iterations = 0", solver="{max_iterations: 0}"),
    "config: time in words": config(
        "solver.time_limit = 'soon'|2h30m", solver="{time_limit: soon}"
    ),
    "config: memory in words": config(
        "solver.memory_limit = 'lots'|512MiB", solver="{memory_limit: lots}"
    ),
    "config: too little memory": Case(
        "train c.yaml",
        {"c.yaml": bad.config(solver="{memory_limit: 1MiB}")},
        ("solver.memory_limit = 1 MiB", "at least"),
    ),
    "config: no threads": config("solver.threads = 0", solver="{threads: 0}"),
    "config: seed below 0": config("solver.seed = -1", solver="{seed: -1}"),
    "config: initial too far": Case(
        "train c.yaml",
        {"c.yaml": bad.config(solver="{initial: 999}")},
        ("solver.initial = 999", "rows 0 to 29"),
    ),
    "config: no snapshots": config("run.snapshot_every = 0", run="{snapshot_every: 0}"),
    "config: no checkpoint": config("run.keep_checkpoints = 0", run="{keep_checkpoints: 0}"),
    "config: unknown cluster": config("cluster.kind = 'moon'", cluster="{kind: moon}"),
    "config: a section is a number": config("solver", solver="5"),
    "config: prepare option": config(
        "unknown key 'data.prepare.scalling'|'scaling'",
        data="{source: good.csv, prepare: {scalling: minmax}}",
    ),
    "config: a zero byte": config("run.dir|zero byte", run=r'{dir: "a\0b"}'),
    "config: numbers as text": Case(
        "train c.yaml --run-dir r",
        {"c.yaml": bad.config(solver="{max_iterations: '20', tolerance: '1e-3'}")},
    ),
    "config: Windows line ends": Case(
        "train c.yaml --run-dir r", {"c.yaml": bad.config().replace("\n", "\r\n").encode()}
    ),
    "config: byte order mark": Case(
        "train c.yaml --run-dir r", {"c.yaml": b"\xef\xbb\xbf" + bad.config().encode()}
    ),
    # --set
    "set: no value": setting("--set model.C|section.key=value", "model.C"),
    "set: wrong value": setting("--set model.C: model.C = -1|greater than 0", "model.C=-1"),
    "set: unknown key": setting("--set solver.tolerence: |'tolerance'", "solver.tolerence=1"),
    "set: not YAML": setting("--set model.C", "model.C=["),
    "set: into a number": setting("--set model.C.x=1|no keys in it", "model.C.x=1"),
    "set: unknown source": setting(
        "nosuch|no such file|miniboone", "'data={source: nosuch, prepare: {rows: 5}}'"
    ),
    "set: no such store": setting("no.zarr|no such store|prepare", "data.train=no.zarr"),
    # Data to train on
    "train: a file of rows": Case(
        "train c.yaml",
        {"c.yaml": bad.config(train="good.csv")},
        ("good.csv", "bigsvm.prepare"),
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
        "model|mfw has no `weights`|sample_weight", model="{weights: w, kernel: {gamma: 1}}"
    ),
    "weights: rounds of fw": config(
        "model|fw has no `rounds`|rwsvm", model="{algorithm: fw, rounds: 3, kernel: {gamma: 1}}"
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
        ("run", "data was", "--run-dir"),
    ),
    "run: of another model": Case(
        "train good.yaml --run-dir run --set model.C=7",
        {},
        ("run", "C was 1.0 and is now 7.0"),
    ),
    # Raw files
    "read: not there": Case("prepare no.csv new.zarr", {}, ("no.csv", "no such file", "miniboone")),
    "read: a folder": Case("prepare good.zarr new.zarr", {}, ("good.zarr", "file")),
    "read: empty": read("empty", "e.csv", ""),
    "read: only empty lines": read("no rows", "e.csv", "\n\n \n"),
    "read: only a header": read("no rows", "e.csv", "a,b,class\n"),
    "read: NaN": read("line 3, column 2|'nan'|replace", "n.csv", "1,2,0\n1,2,1\n1,nan,0\n"),
    "read: infinite": read("line 1, column 1|'-inf'", "n.csv", "-inf,2,0\n1,2,1\n"),
    "read: beyond float64": read("line 2, column 1|too large", "n.csv", "1,2,0\n1e999,2,1\n"),
    "read: beyond float32": read("line 2, feature 1|--scaling", "n.csv", "1,2,0\n1e99,2,1\n"),
    "read: a word": read("line 2, column 2|'two'|not a number", "n.csv", "1,2,0\n1,two,1\n"),
    "read: a hole": read("line 2, column 2|missing", "n.csv", "1,2,0\n1,,1\n"),
    "read: ragged, short": read("line 3|2 fields|3 are", "n.csv", "1,2,0\n1,2,1\n1,0\n"),
    "read: ragged, long": read("line 2|more than the 3", "n.csv", "1,2,0\n1,2,1,7\n"),
    "read: an open quote": read("line 2|quoted", "n.csv", '1,2,"0"\n1,2,"1\n'),
    "read: header where none is": read(
        "line 1|'a' is not a number", "n.csv", bad.CSV, "--header no"
    ),
    "read: no label": read("line 2|label is missing", "n.csv", "1,2,0\n1,2,\n"),
    "read: labels of two kinds": read("line 3|label is text", "n.csv", "1,2,0\n1,2,1\n1,2,x\n"),
    "read: one class": read("one class only|1", "n.csv", "1,2,1\n1,3,1\n"),
    "read: three classes": read("", "n.csv", "1,2,a\n1,3,b\n1,4,c\n1,2,a\n1,3,b\n1,4,c\n"),
    "read: a label for each row": read(
        "3 different labels|right column|positive", "n.csv", "1,2,a\n1,3,b\n1,4,c\n"
    ),
    "read: 1,001 classes": read(
        "1001 different labels|right column",
        "n.csv",
        "".join(f"1,2,{i // 3}\n" for i in range(3003)),
    ),
    "read: three classes, one against the rest": read(
        "", "n.csv", "1,2,a\n1,3,b\n1,4,c\n", "--positive b"
    ),
    "read: no such positive": read("no row|'z'", "n.csv", "1,2,a\n1,3,b\n", "--positive z"),
    "read: no such label column": read("'klass'|'class'", "n.csv", bad.CSV, "--label-column klass"),
    "read: a weight below 0": read(
        "line 3|column 2 ('w')|-1 is no weight",
        "n.csv",
        "a,w,class\n1,0,0\n2,-1,1\n3,1,1\n",
        "--weight-column w",
    ),
    "read: a weight that is no number": read(
        "line 2|column 1|'nan' is not finite", "n.csv", "1,2,0\nnan,3,1\n", "--weight-column 0"
    ),
    "read: no such weight column": read("'w'|'class'", "n.csv", bad.CSV, "--weight-column w"),
    "read: labels as weights": read(
        "'class'|labels|--label-column", "n.csv", bad.CSV, "--weight-column class"
    ),
    "read: only labels": read("no features", "n.csv", "1\n0\n1\n", "--format csv"),
    "read: one row": read("one class only", "n.csv", "1,2,1\n"),
    "read: two rows": read("", "n.csv", "1,2,1\n3,4,0\n"),
    "read: a constant feature": read("", "n.csv", "1,2,1\n1,4,0\n", "--scaling standard"),
    "read: all rows equal": read("", "n.csv", "1,2,1\n1,2,0\n", "--scaling minmax"),
    "read: Windows line ends": read("", "n.csv", bad.CSV.replace("\n", "\r\n").encode()),
    "read: UTF-16": read("UTF-16|UTF-8", "n.csv", bad.CSV.encode("utf-16")),
    "read: spaces and letters": read("", "größe 日本.csv", bad.CSV),
    "read: a binary file": read("not a text file", "n.csv", bytes(range(256))),
    "read: cut gz": read("ends too early|fetch it again", "n.csv.gz", bad.cut("gz")),
    "read: cut bz2": read("ends too early|fetch it again", "n.csv.bz2", bad.cut("bz2")),
    "read: cut xz": read("ends too early|fetch it again", "n.csv.xz", bad.cut("xz")),
    "read: xz of 4 GiB": read("dictionary|xz", "n.csv.xz", bad.xz_of_huge_dictionary(bad.CSV)),
    "read: zip that climbs out": read("", "n.zip", bad.zipped({"../../evil.csv": bad.CSV})),
    "read: zip of two": read(
        "one data file|'a.csv', 'b.csv'", "n.zip", bad.zipped({"a.csv": "", "b.csv": ""})
    ),
    "read: zip with a password": read("password", "n.zip", bad.encrypted({"a.csv": bad.CSV})),
    "read: LIBSVM index 0": read("line 2|indices count from 1", "n.svm", "1 1:2\n0 0:3\n"),
    "read: LIBSVM out of order": read("line 1|come after", "n.svm", "1 2:2 1:1\n0 1:3\n"),
    "read: LIBSVM index too far": read("line 2|the limit", "n.svm", "1 1:2\n0 99999999:3\n"),
    "read: LIBSVM no pair": read("line 2|index:value", "n.svm", "1 1:2\n0 3\n"),
    "read: MiniBooNE cut": read(
        "promises 2 + 2|3", "n.txt", "2 2\n" + "1 2 3\n" * 3, "--format miniboone"
    ),
    "read: MiniBooNE without counts": read("two counts", "n.txt", "1 2 3\n", "--format miniboone"),
    "read: npy of objects": read("Python objects", "n.npy", bad.OBJECTS),
    "read: npy cut": read("ends before", "n.npy", bad.npy(bad.ROWS)[:-8]),
    "read: npy of one dimension": read("two-dimensional", "n.npy", bad.npy(np.ones(5))),
    "read: npy with NaN": read(
        "row 2, feature 1|nan", "n.npy", bad.npy(np.array([[1, 1], [NAN, 0]]))
    ),
    "read: npz without labels": read("no array 'y'|'X'", "n.npz", bad.npz(X=bad.ROWS)),
    "read: npz labels too few": read("(3,)|12 rows", "n.npz", bad.npz(X=bad.ROWS, y=np.ones(3))),
    "read: Parquet cut": read("Parquet", "n.parquet", b"PAR1" + bytes(50)),
    "read: Parquet with a null": read(
        "row 2|'a'|missing", "n.parquet", bad.parquet(a=[1.0, None], y=[0, 1])
    ),
    "read: Parquet with text": read(
        "'a'|not numbers", "n.parquet", bad.parquet(a=["u", "v"], y=[0, 1])
    ),
    "read: Parquet of other format": read("n.csv", "n.csv", b"PAR1" + bytes(60), "--format csv"),
    # Options of prepare
    "prepare: unknown option": Case("prepare good.csv new.zarr --scalling x", {}, ("--scalling",)),
    "prepare: rows in words": Case(
        "prepare synthetic new.zarr --rows many", {}, ("--rows", "many")
    ),
    "prepare: rows of a file": Case(
        "prepare good.csv new.zarr --rows 5", {}, ("rows", "synthetic")
    ),
    "prepare: no rows": Case("prepare synthetic new.zarr --rows 0", {}, ("rows", "0")),
    "prepare: fraction above 1": Case(
        "prepare good.csv new.zarr --test-fraction 1.5", {}, ("test_fraction", "1.5", "less than 1")
    ),
    "prepare: all for the test": Case(
        "prepare good.csv new.zarr --test-rows 40", {}, ("40 test rows", "take fewer")
    ),
    "prepare: clip 0": Case("prepare good.csv new.zarr --clip 0", {}, ("clip", "greater than 0")),
    "prepare: store of no format": Case("prepare good.csv new.store", {}, ("new.store", "*.zarr")),
    "prepare: store exists": Case("prepare good.csv good.zarr", {}, ("good.zarr", "--overwrite")),
    "prepare: overwrites no strangers": Case(
        "prepare good.csv my.zarr --overwrite",
        {"my.zarr/thesis.tex": "x"},
        ("my.zarr", "not a store"),
    ),
    "prepare: no folder": Case("prepare good.csv no/new.zarr", {}, ("no/new.zarr", "create it")),
    "prepare: delimiter of two": Case(
        "prepare good.csv new.zarr --delimiter ab", {}, ("delimiter", "'ab'")
    ),
    "prepare: test file of other features": Case(
        "prepare good.csv new.zarr --test-file t.csv",
        {"t.csv": "a,class\n1,yes\n"},
        ("t.csv", "1 features", "has 2"),
    ),
    "prepare: all dropped": Case(
        "prepare n.csv new.zarr --drop-value 1", {"n.csv": "1,1,0\n1,1,1\n"}, ("n.csv", "dropped")
    ),
    # Models, and rows for them
    "model: not there": Case(
        "predict no.safetensors good.csv o.csv", {}, ("no.safetensors", "no such file")
    ),
    "model: a folder": Case("predict run good.csv o.csv", {}, ("run", "model.safetensors")),
    "model: a header of 10 GB": model("damaged", bad.safetensors_header_of(10 * 2**30)),
    "model: a pickle": model("damaged, or not", bad.PICKLE),
    "model: empty": model("damaged, or not", b""),
    "model: cut": model("damaged", bad.copied("run/model.safetensors", bad.shortened)),
    "model: a flipped bit": model(
        "damaged|checksum", bad.copied("run/model.safetensors", bad.one_bit_flipped)
    ),
    "model: a checkpoint": model(
        "checkpoint",
        bad.copied("run/checkpoints/checkpoint-0000000020.safetensors", lambda path: None),
    ),
    "model: of a later version": model(
        "bigsvm model 99", bad.copied("run/model.safetensors", bad.about(format="bigsvm model 99"))
    ),
    "model: unknown kernel": model(
        "makes no model", bad.copied("run/model.safetensors", bad.about(kernel={"name": "exec"}))
    ),
    "model: NaN inside": model("finite", bad.copied("run/model.safetensors", bad.coefficient(NAN))),
    "predict: other number of features": Case(
        "predict run/model.safetensors n.csv o.csv",
        {"n.csv": "1,2,3,4,yes\n"},
        ("n.csv", "4 features", "has 2"),
    ),
    "predict: labels taken for a feature": Case(
        "predict run/model.safetensors n.csv o.csv",
        {"n.csv": "1,2\n3,4\n"},
        ("n.csv", "1 features", "--no-labels"),
    ),
    "predict: other labels": Case(
        "predict run/model.safetensors n.csv o.csv",
        {"n.csv": "1,2,maybe\n"},
        ("n.csv", "'maybe'", "'yes'"),
    ),
    "predict: NaN": Case(
        "predict run/model.safetensors n.csv o.csv",
        {"n.csv": "1,nan,yes\n"},
        ("n.csv", "line 1, column 2"),
    ),
    "predict: no rows": Case(
        "predict run/model.safetensors n.csv o.csv", {"n.csv": "a,b,class\n"}, ("n.csv", "no rows")
    ),
    "predict: no input": Case("predict run/model.safetensors no.csv o.csv", {}, ("no.csv",)),
    "predict: no such group": Case(
        "predict run/model.safetensors good.zarr/tset o.csv", {}, ("good.zarr", "'tset'", "test")
    ),
    "predict: output of no format": Case(
        "predict run/model.safetensors good.csv o.txt", {}, ("o.txt", "*.csv")
    ),
    "predict: output exists": Case(
        "predict run/model.safetensors good.csv good.csv", {}, ("good.csv", "--overwrite")
    ),
    "predict: output is the input": Case(
        "predict run/model.safetensors good.csv good.csv --overwrite", {}, ("good.csv", "an input")
    ),
    "predict: no folder": Case(
        "predict run/model.safetensors good.csv no/o.csv", {}, ("no/o.csv", "create it")
    ),
    "predict: option of stores": Case(
        "predict run/model.safetensors good.csv o.csv --x X", {}, ("--x", "good.csv")
    ),
    # Runs to evaluate
    "evaluate: not there": Case("evaluate none", {}, ("none", "no such run directory")),
    "evaluate: no run": Case("evaluate good.zarr", {}, ("good.zarr", "neither snapshots")),
    "evaluate: names no test set": Case("evaluate run", {}, ("run/config.yaml", "--test")),
    "evaluate: no such test set": Case("evaluate run --test no.zarr", {}, ("no.zarr", "no such")),
    "evaluate: labels missing": Case(
        "evaluate run --labels a b", {}, ("--labels", "2 given for 1")
    ),
    "evaluate: no picture": Case("evaluate run --picture p.pdf", {}, ("p.pdf", "*.png")),
    "evaluate: the config is broken": Case(
        "evaluate run", {"run/config.yaml": "data: ["}, ("run/config.yaml", "not YAML")
    ),
    "evaluate: a damaged snapshot": Case(
        "evaluate run --test good.zarr",
        {"run/snapshots/model-00000007.safetensors": b"half"},
        ("model-00000007.safetensors", "damaged"),
    ),
    # The command line
    "command: a path too long": Case(f"prepare good.csv {'x' * 300}.zarr", {}, ("xxx", "too long")),
    "command: a file for a folder": Case(
        "predict run/model.safetensors good.csv good.csv/o.csv", {}, ("good.csv/o.csv", "no folder")
    ),
    "command: unknown": Case("trian good.yaml", {}, ("trian", "train")),
    "command: no config": Case("train", {}, ("CONFIG.yaml", "--help")),
    "command: unknown option": Case("train good.yaml --rund-dir r", {}, ("--rund-dir", "--help")),
    "command: no value": Case("train good.yaml --set", {}, ("--set", "--help")),
    "command: unknown format": Case(
        "prepare good.csv new.zarr --format xls", {}, ("--format", "xls", "csv")
    ),
}
