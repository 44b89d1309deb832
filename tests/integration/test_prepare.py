"""`prepare` end to end: what is in the store, to the bit, and what is left when it fails."""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr
from sklearn.datasets import load_svmlight_file

from bigsvm import cli
from bigsvm.config import DataConfig
from bigsvm.config.prepare_options import PrepareOptions, validate_options
from bigsvm.core.errors import UserError
from bigsvm.preparation.data_sets import resolve_data
from bigsvm.preparation.pipeline import prepare
from bigsvm.preparation.split import TestRowSampler
from bigsvm.prepare import main
from bigsvm.stores.fingerprint import verified_fingerprint
from bigsvm.stores.store import Dataset, open_dataset
from tests.support.trainings import wait_until


def csv_file(path: Path, X: np.ndarray, labels: list[object]) -> Path:
    rows = zip(X.tolist(), labels, strict=True)
    path.write_text("\n".join(",".join(map(repr, row)) + f",{label}" for row, label in rows))
    return path


@pytest.fixture
def table(tmp_path: Path) -> tuple[Path, np.ndarray, np.ndarray]:
    """A CSV file of 500 x 3, its rows, and its signs; the first feature counts the rows."""
    X = np.random.default_rng(5).normal(2, 30, size=(500, 3))
    X[:, 0] = np.arange(500)
    signs = np.where(X[:, 1] > 0, 1, -1)
    labels = np.where(signs > 0, "yes", "no").tolist()
    return csv_file(tmp_path / "mine.csv", X, labels), X, signs


def everything(store: Path, part: str = "train") -> tuple[Dataset, np.ndarray, np.ndarray]:
    data = open_dataset(store, part)
    assert verified_fingerprint(data) == data.recorded_fingerprint
    return data, data.read(0, data.n), data.labels()


@pytest.mark.parametrize("name", ["s.zarr", "s.h5"])
def test_rows_arrive_unchanged_and_in_order(tmp_path: Path, table: tuple, name: str) -> None:
    path, X, signs = table
    prepare(path, tmp_path / name, PrepareOptions(chunk_rows=64, scaling="none"))
    data, rows, labels = everything(tmp_path / name)
    assert data.classes == ("no", "yes") and data.chunk_rows == 64
    np.testing.assert_array_equal(rows, X.astype(np.float32))
    np.testing.assert_array_equal(labels, signs)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine.csv", name]


def test_scaling_is_fitted_on_training_rows_only(tmp_path: Path, table: tuple) -> None:
    path, X, signs = table
    for kind in ("standard", "minmax"):
        store = tmp_path / f"{kind}.zarr"
        options = PrepareOptions(scaling=kind, clip=1.5, test_rows=120, seed=3)
        summary = prepare(path, store, options)
        data, train, train_labels = everything(store)
        _, test, test_labels = everything(store, "test")
        assert (len(train), len(test)) == (380, 120)
        assert data.scaling == summary.scaling and data.scaling is not None
        # The counter in the first feature tells which row is which.
        scale, offset = data.scaling.scale[0], data.scaling.offset[0]
        chosen = TestRowSampler(500, 120, 3).next(500)
        for rows, mask, labels in ((train, ~chosen, train_labels), (test, chosen, test_labels)):
            expected = np.clip((X[mask] - data.scaling.offset) / data.scaling.scale, -1.5, 1.5)
            np.testing.assert_array_equal(rows, expected.astype(np.float32))
            np.testing.assert_array_equal(labels, signs[mask])
        low, high = X[~chosen].min(axis=0), X[~chosen].max(axis=0)
        if kind == "standard":
            np.testing.assert_allclose(data.scaling.offset, X[~chosen].mean(axis=0), rtol=1e-12)
            np.testing.assert_allclose(data.scaling.scale, X[~chosen].std(axis=0), rtol=1e-12)
        else:
            np.testing.assert_allclose((offset, scale), ((low + high)[0] / 2, (high - low)[0] / 2))


def test_split_depends_on_the_seed_only_and_is_even() -> None:
    n, test_rows = 200_000, 50_000
    mask = TestRowSampler(n, test_rows, 1).next(n)
    assert mask.sum() == test_rows
    pieces = TestRowSampler(n, test_rows, 1)
    again = np.concatenate([pieces.next(size) for size in (1, 70_000, 129_999)])
    np.testing.assert_array_equal(again, mask)
    assert (TestRowSampler(n, test_rows, 2).next(n) != mask).any()
    # Ten equal stretches have 5,000 each, give or take five standard deviations.
    assert np.abs(mask.reshape(10, -1).sum(axis=1) - 5000).max() < 5 * 61
    assert TestRowSampler(7, 7, 0).next(7).all() and not TestRowSampler(7, 0, 0).next(7).any()


def test_same_input_same_bits_whatever_the_chunks_and_the_format(
    tmp_path: Path, table: tuple
) -> None:
    path, X, signs = table
    np.save(tmp_path / "mine.npy", np.column_stack([X, signs]))
    chosen = {"scaling": "standard", "test_fraction": 0.2}
    prints = set()
    for number, (source, options) in enumerate(
        (
            (path, {}),
            (path, {"chunk_rows": 7, "compression": "none"}),
            (tmp_path / "mine.npy", {}),
        )
    ):
        store = tmp_path / f"{number}.zarr"
        prepare(source, store, validate_options({**chosen, **options}))
        prints.add(tuple(open_dataset(store, p).recorded_fingerprint for p in ("train", "test")))
    assert len(prints) == 1


def test_rows_equal_to_the_drop_value_in_every_feature_go(tmp_path: Path) -> None:
    X = np.array([[-999.0, -999.0], [1.0, -999.0], [-999.0, -999.0], [3.0, 4.0]])
    path = csv_file(tmp_path / "m.csv", X, [0, 0, 1, 1])
    summary = prepare(path, tmp_path / "s.h5", PrepareOptions(drop_value=-999, scaling="none"))
    assert summary.dropped == 2
    _, rows, labels = everything(tmp_path / "s.h5")
    assert rows.tolist() == [[1, -999], [3, 4]] and labels.tolist() == [-1, 1]
    with pytest.raises(UserError, match=r"no rows are left \(1 were dropped\)"):
        prepare(
            csv_file(tmp_path / "one.csv", X[:1], [0]),
            tmp_path / "t.h5",
            PrepareOptions(drop_value=-999),
        )


def test_a_separate_test_file_with_fewer_libsvm_features(tmp_path: Path) -> None:
    (tmp_path / "train").write_text("-1 1:0.5 3:2\n+1 2:1\n-1 4:8\n")
    (tmp_path / "test").write_text("+1 2:3\n")
    prepare(
        tmp_path / "train",
        tmp_path / "s.zarr",
        PrepareOptions(scaling="minmax"),
        test_file=tmp_path / "test",
    )
    data, rows, labels = everything(tmp_path / "s.zarr")
    assert data.classes == (-1, 1)
    assert rows.tolist() == [[1, -1, 1, -1], [-1, 1, -1, -1], [-1, -1, -1, 1]]
    _, rows, labels = everything(tmp_path / "s.zarr", "test")
    assert rows.tolist() == [[-1, 5, -1, -1]] and labels.tolist() == [1]
    with pytest.raises(UserError, match="leave out test_rows"):
        prepare(
            tmp_path / "train",
            tmp_path / "t.zarr",
            PrepareOptions(test_rows=1),
            test_file=tmp_path / "test",
        )
    (tmp_path / "test.csv").write_text("1,2,yes\n")
    (tmp_path / "train.csv").write_text("1,2,3,yes\n3,4,5,no\n")
    with pytest.raises(UserError, match=r"has 2 features where .* has 3"):
        prepare(tmp_path / "train.csv", tmp_path / "t.zarr", test_file=tmp_path / "test.csv")
    (tmp_path / "test.csv").write_text("1,2,3,maybe\n")
    with pytest.raises(UserError, match=r"test.csv: label 'maybe' is neither 'no' nor 'yes'"):
        prepare(tmp_path / "train.csv", tmp_path / "t.zarr", test_file=tmp_path / "test.csv")


def test_labels_of_more_or_fewer_than_two_values(tmp_path: Path) -> None:
    X = np.arange(8.0).reshape(4, 2)
    path = csv_file(tmp_path / "m.csv", X, ["c", "a", "b", "a"])
    with pytest.raises(UserError, match=r"3 different labels in 4 rows .* 'a', 'b', 'c'"):
        prepare(path, tmp_path / "s.zarr")
    prepare(path, tmp_path / "s.zarr", PrepareOptions(positive="a"))
    data, _, labels = everything(tmp_path / "s.zarr")
    assert data.classes == ("rest", "a") and labels.tolist() == [-1, 1, -1, 1]
    with pytest.raises(UserError, match="no row has the positive label 'z'"):
        prepare(path, tmp_path / "t.zarr", PrepareOptions(positive="z"))
    with pytest.raises(UserError, match="one class only"):
        prepare(csv_file(tmp_path / "n.csv", X, [1, 1, 1, 1]), tmp_path / "t.zarr")
    numbers = csv_file(tmp_path / "n.csv", X, [10, 9, 10, 9])
    prepare(numbers, tmp_path / "u.zarr")
    assert open_dataset(tmp_path / "u.zarr").classes == (9, 10)
    prepare(numbers, tmp_path / "u.zarr", PrepareOptions(positive="9"), overwrite=True)
    assert open_dataset(tmp_path / "u.zarr").classes == (10, 9)


def test_a_split_that_takes_a_whole_class(tmp_path: Path) -> None:
    path = csv_file(tmp_path / "m.csv", np.eye(4), [0, 0, 0, 1])
    seeds = [seed for seed in range(50) if TestRowSampler(4, 1, seed).next(4)[3]]
    with pytest.raises(UserError, match="no training row has the label 1"):
        prepare(path, tmp_path / "s.zarr", PrepareOptions(test_rows=1, seed=seeds[0]))
    with pytest.raises(UserError, match="leave none to train on"):
        prepare(path, tmp_path / "s.zarr", PrepareOptions(test_rows=4))
    assert [p.name for p in tmp_path.iterdir()] == ["m.csv"]


def test_values_beyond_float32(tmp_path: Path) -> None:
    X = np.array([[1.0, 2.0], [3.0, -1e39], [0.0, 5.0]])
    path = csv_file(tmp_path / "m.csv", X, [0, 1, 1])
    with pytest.raises(UserError, match=r"m.csv, line 2, feature 2: -1e\+39 does not fit"):
        prepare(path, tmp_path / "s.zarr", PrepareOptions(scaling="none"))
    prepare(path, tmp_path / "s.zarr", PrepareOptions(scaling="none", clip=4))
    assert everything(tmp_path / "s.zarr")[1].tolist() == [[1, 2], [3, -4], [0, 4]]
    prepare(path, tmp_path / "t.zarr", PrepareOptions(scaling="standard"))
    assert np.isfinite(everything(tmp_path / "t.zarr")[1]).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2,yes\n3,oops,no\n", "oops"),
        ("1,2,yes\n3,no\n", ""),
        ("1,2,yes\n3,nan,no\n", ""),
        ("", ""),
    ],
)
def test_a_bad_file_is_named_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    (tmp_path / "bad.csv").write_text(text)
    assert cli.run(main, [str(tmp_path / "bad.csv"), str(tmp_path / "s.zarr")]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: ") and told.count("\n") == 1
    assert "bad.csv" in told and message in told
    assert [p.name for p in tmp_path.iterdir()] == ["bad.csv"]


def test_the_command(tmp_path: Path, table: tuple, capsys: pytest.CaptureFixture[str]) -> None:
    path = table[0]
    store = tmp_path / "s.zarr"
    arguments = [str(path), str(store), "--scaling", "standard", "--test-fraction", "0.1"]
    assert cli.run(main, arguments) == 0
    told = capsys.readouterr().out
    assert "train: 450 rows x 3 features; no " in told
    assert "test: 50 rows x 3 features" in told and str(store) in told
    assert cli.run(main, arguments) == 2
    assert "exists already; --overwrite" in capsys.readouterr().err
    assert cli.run(main, [*arguments, "--overwrite", "--quiet", "--label-column", "-1"]) == 0
    told = capsys.readouterr()
    assert told.out == told.err == ""
    record = open_dataset(store).prepare_options
    assert (record["scaling"], record["test_fraction"], record["label_column"]) == (
        "standard",
        0.1,
        "-1",
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.csv", "s.zarr"], "no such file, and no source of this name; known are:"),
        (["iris", "s.txt"], "must end in .zarr"),
        (["iris", "s.zarr", "--clip", "-1"], "prepare option clip = -1.0"),
        (["iris", "s.zarr", "--test-fraction", "1.5"], "test_fraction"),
        (["iris", "s.zarr", "--test-rows", "1", "--test-fraction", "0.5"], "not both"),
        (["iris", "s.zarr", "--rows", "10"], "are for the source 'synthetic'"),
        (["iris", "s.zarr", "--drop-value", "x"], "prepare option drop_value"),
        (["synthetic", "s.h5", "--compression", "zstd"], "HDF5 has no zstd"),
    ],
)
def test_mistakes_in_arguments(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run(main, arguments) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_synthetic_data(tmp_path: Path) -> None:
    options = PrepareOptions(rows=3000, features=6, noise=0.05, seed=4, test_rows=1000)
    prepare("synthetic", tmp_path / "a.zarr", options)
    prepare("synthetic", tmp_path / "b.h5", options)
    first, second = open_dataset(tmp_path / "a.zarr"), open_dataset(tmp_path / "b.h5")
    assert (first.n, first.d) == (2000, 6)
    assert first.recorded_fingerprint == second.recorded_fingerprint


def test_progress_tells_each_step_to_its_end(tmp_path: Path, table: tuple) -> None:
    told: dict[str, tuple[int, int | None]] = {}

    def listen(what: str, done: int, total: int | None) -> None:
        told[what] = (done, total)

    options = PrepareOptions(scaling="standard", test_rows=100)
    prepare(table[0], tmp_path / "s.zarr", options, progress=listen)
    size = table[0].stat().st_size
    assert told == {
        "checking bytes of mine.csv": (size, size),
        "reading rows of mine.csv": (500, None),
        "fitting the scaling": (400, 400),
        "writing rows": (500, 500),
    }


@pytest.mark.parametrize("deadly", [signal.SIGKILL, signal.SIGTERM])
def test_killed_in_the_middle_then_run_again(tmp_path: Path, deadly: signal.Signals) -> None:
    store = tmp_path / "s.zarr"
    command = [sys.executable, "-m", "bigsvm.prepare", "synthetic", str(store), "--features", "20"]
    with subprocess.Popen([*command, "--rows", "100000000"]) as process:
        spilled = tmp_path / ".s.zarr.spill" / "train.rows"
        wait_until(lambda: spilled.exists() and spilled.stat().st_size > 0, process)
        with pytest.raises(UserError, match="another process is writing it"):
            prepare("synthetic", store)
        with pytest.raises(UserError, match="still being prepared"):
            open_dataset(store)
        process.send_signal(deadly)
    assert process.returncode in (-signal.SIGKILL, 128 + signal.SIGTERM)
    assert not store.exists()
    assert (deadly == signal.SIGKILL) == spilled.exists()
    subprocess.run([*command, "--rows", "1000", "--quiet"], check=True)
    assert open_dataset(store).n == 1000
    assert [p.name for p in tmp_path.iterdir()] == ["s.zarr"]


def test_a_full_disk_is_told_in_one_line(tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk."""
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20));"
        "from bigsvm import cli, prepare; sys.exit(cli.run(prepare.main))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "synthetic", str(tmp_path / "s.zarr")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "are needed temporarily" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_miniboone(tmp_path: Path, data_dir: Path) -> None:
    options = PrepareOptions(scaling="standard", clip=8, test_rows=12_825)
    summary = prepare("miniboone", tmp_path / "mb.zarr", options)
    assert summary.dropped == 173
    assert {part: sum(count) for part, count in summary.counts.items()} == {
        "train": 60_000,
        "test": 12_825,
    }
    assert sum(count[1] for count in summary.counts.values()) == 36_499 - 11
    data, rows, labels = everything(tmp_path / "mb.zarr")
    assert data.classes == ("background", "signal")
    assert np.abs(rows).max() == 8
    # Signal comes first in the file, and rows keep their order.
    assert (np.diff(labels) != 0).sum() == 1 and labels[0] == 1
    assert zarr.open_group(tmp_path / "mb.zarr/train", mode="r")["X"].dtype == np.float32


def test_other_named_sources(tmp_path: Path, data_dir: Path) -> None:
    summary = prepare("ijcnn1", tmp_path / "ijcnn1.h5")
    assert summary.counts == {"train": (45_137, 4_853), "test": (82_989, 8_712)}
    assert summary.d == 22
    summary = prepare("magic", tmp_path / "magic.zarr", PrepareOptions(test_rows=6000))
    assert summary.classes == ("h", "g")
    assert [sum(count) for count in summary.counts.values()] == [13_020, 6000]
    assert sum(count[1] for count in summary.counts.values()) == 12_332
    summary = prepare("a9a", tmp_path / "a9a.zarr")
    assert summary.counts == {"train": (24_720, 7_841), "test": (12_435, 3_846)}
    summary = prepare("covtype", tmp_path / "covtype.zarr", PrepareOptions(test_rows=116_203))
    assert summary.classes == ("rest", 2) and summary.d == 54
    assert sum(count[1] for count in summary.counts.values()) == 283_301
    summary = prepare("iris", tmp_path / "iris.zarr")
    assert summary.classes == ("rest", "Iris-setosa")
    assert summary.counts == {"train": (100, 50)}
    assert prepare("sonar", tmp_path / "sonar.zarr").counts == {"train": (97, 111)}


def test_text_like_rows_are_refused_before_they_are_stored_dense(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"{1 if k % 2 else -1} {k % 900 + 1}:1 {k + 1000}:0.5" for k in range(20_000)]
    path, store = tmp_path / "words.libsvm", tmp_path / "words.zarr"
    path.write_text("\n".join([*rows, "1 50000:1"]) + "\n")
    assert cli.main(["prepare", str(path), str(store)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "3.7 GiB" in error and "--features 50000" in error
    assert [found.name for found in tmp_path.iterdir()] == [path.name]
    path.write_text("\n".join(rows[:100]) + "\n")  # as sparse, and small
    assert cli.main(["prepare", str(path), str(store), "--quiet"]) == 0


@pytest.mark.parametrize(
    ("source", "kind"),
    [("t.csv", "standard"), ("t.npz", "standard"), ("t.libsvm", "none"), ("heart", "none")],
)
def test_files_are_scaled_unless_they_are_libsvm_text(
    tmp_path: Path, data_dir: Path, source: str, kind: str
) -> None:
    X, y = load_svmlight_file(str(data_dir / "heart_scale"))
    np.savez(tmp_path / "t.npz", X=X.toarray(), y=y)
    csv_file(tmp_path / "t.csv", X.toarray(), list(y))
    (tmp_path / "t.libsvm").write_text((data_dir / "heart_scale").read_text())
    summary = prepare(source if source == "heart" else tmp_path / source, tmp_path / "s.zarr")
    assert summary.scaling.kind == kind


def test_a_store_made_before_that_is_used_as_it_is(tmp_path: Path, table: tuple) -> None:
    store, source = tmp_path / "s.zarr", str(table[0])
    prepare(source, store, PrepareOptions(scaling="none"))
    found = resolve_data(DataConfig(source=source, train=str(store)))
    assert found.train == str(store)
    asked = DataConfig(source=source, train=str(store), prepare=PrepareOptions(scaling="standard"))
    with pytest.raises(UserError, match="was prepared with scaling = 'none'"):
        resolve_data(asked)


def test_unscaled_features_of_unequal_size_are_warned_of(
    tmp_path: Path, data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw = np.random.default_rng(0)
    X = draw.normal(size=(500, 3)) * [1, 1000, 5]
    X[:, 2] = draw.uniform(size=500) < 0.001  # of a small deviation, and as wide as others
    X[0, 2] = 1
    wide = csv_file(tmp_path / "wide.csv", X, ["a", "b"] * 250)
    prepare(wide, tmp_path / "w.zarr", PrepareOptions(scaling="none"))
    said = capsys.readouterr().err
    assert said.startswith("warning: the rows are not scaled") and said.count("\n") == 1
    assert "--scaling standard" in said
    prepare(wide, tmp_path / "s.zarr")
    equal = csv_file(tmp_path / "equal.csv", X[:, [0, 2]], ["a", "b"] * 250)
    prepare(equal, tmp_path / "e.zarr", PrepareOptions(scaling="none"))
    assert capsys.readouterr().err == ""


def test_only_where_no_label_column_was_named_it_may_be_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.csv"
    path.write_text("1,x,0\n2,y,1\n")
    for named, hinted in (([], True), (["--label-column", "2"], False)):
        assert cli.main(["prepare", str(path), str(tmp_path / "s.zarr"), *named]) == 2
        said = capsys.readouterr().err
        assert "'x' is not a number" in said and ("column of labels?" in said) == hinted


def test_columns_of_a_test_file_go_by_their_names(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b,y\n1,2,0\n3,4,1\n")
    (tmp_path / "t.csv").write_text("b,a,y\n2,1,0\n")
    plain = PrepareOptions(scaling="none")
    prepare(tmp_path / "a.csv", tmp_path / "s.zarr", plain, test_file=tmp_path / "t.csv")
    with open_dataset(tmp_path / "s.zarr", "test") as data:
        assert data.read(0, 1).tolist() == [[1, 2]]
