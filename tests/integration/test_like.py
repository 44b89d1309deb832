"""New labelled data, prepared as the training data was: `prepare --like`, `evaluate --test`."""

import csv
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.feather
import pytest

from bigsvm import BigSVC, cli, load_model
from bigsvm.stores.store import open_dataset
from tests.support.real_table import NAMES, command, magic_table
from tests.support.trainings import HANGS, environment

KINDS = {True: "wide", False: "narrow"}


def table_of(data_dir: Path, rows: int, seed: int) -> pd.DataFrame:
    table = magic_table(data_dir, rows, seed).assign(id=range(rows))
    table["kind"] = table["fAlpha"].gt(20).map(KINDS)
    table.loc[::7, "fWidth"] = np.nan
    return table[["id", "kind", *NAMES, "class"]]


@pytest.fixture(scope="module", params=["messy", "plain"])
def folder(
    request: pytest.FixtureRequest, data_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """t.zarr, its test part from test.csv; a run on it; other.csv: test.csv in another order."""
    folder = tmp_path_factory.mktemp(request.param)
    train, test = table_of(data_dir, 700, 0), table_of(data_dir, 300, 1)
    options = ["--scaling", "standard", "--clip", 3, "--label-column", "class", "--quiet"]
    if request.param == "messy":
        options += ["--ignore", "id", "--categorical", "kind", "--missing", "indicator"]
    else:
        train, test = (table[["fSize", "fAlpha", "fDist", "class"]] for table in (train, test))
    train.to_csv(folder / "train.csv", index=False)
    test.to_csv(folder / "test.csv", index=False)
    other = test[["class", *reversed(list(test)[:-1])]].assign(more="text")
    other.to_csv(folder / "other.csv", index=False)
    pyarrow.feather.write_feather(test, folder / "test.feather")
    test_file = ["--test-file", folder / "test.csv"]
    command("prepare", folder / "train.csv", folder / "t.zarr", *test_file, *options)
    command("init", folder / "t.zarr", "--out", folder / "t.yaml")
    asked = ["--set", "solver.tolerance=0.1", "--set", "run.snapshot_every=300"]
    command("train", folder / "t.yaml", "--run-dir", folder / "run", *asked)
    return folder


def content(store: Path) -> tuple[bytes, bytes, list[str] | None, object]:
    with open_dataset(store, "test") as data:
        return (
            data.read(0, data.n).tobytes(), data.labels().tobytes(), data.feature_names,
            data.encoding,
        )  # fmt: skip


@pytest.mark.parametrize("like", ["t.zarr", "run", "run/model.safetensors"])
def test_the_same_rows_give_the_same_store(folder: Path, tmp_path: Path, like: str) -> None:
    expected = content(folder / "t.zarr/test")
    for name, label in (("test.csv", []), ("other.csv", ["--label-column", "class"])):
        out = tmp_path / f"{name}.zarr"
        command("prepare", folder / name, out, "--like", folder / like, *label)
        assert content(out) == expected


def scores(run: Path) -> list[dict[str, str]]:
    with (run / "evaluation.csv").open() as file:
        return list(csv.DictReader(file))


def test_evaluate_takes_raw_labelled_files(folder: Path) -> None:
    run = folder / "run"
    command("evaluate", run)
    expected = scores(run)
    assert len(expected) > 1
    for name in ("test.csv", "other.csv", "test.feather"):
        command("evaluate", run, "--test", folder / name, "--label-column", "class")
        assert scores(run) == expected
    assert not list(run.glob(".*")), "what was made for it is gone"


def test_several_files_are_one_test_set(folder: Path, tmp_path: Path) -> None:
    test = pd.read_csv(folder / "test.csv")
    for name, part in (("1.csv", test[:100]), ("2.csv", test[100:][reversed(list(test))])):
        part.to_csv(tmp_path / name, index=False)
    label, expected = ["--label-column", "class"], content(folder / "t.zarr/test")
    parts, run = [tmp_path / "1.csv", tmp_path / "2.csv"], folder / "run"
    command("prepare", *parts, tmp_path / "o.zarr", "--like", run, *label)
    assert content(tmp_path / "o.zarr") == expected
    command("prepare", tmp_path / "?.csv", tmp_path / "p.zarr", "--like", run, *label)
    assert content(tmp_path / "p.zarr") == expected
    command("evaluate", run)
    scored = scores(run)
    command("evaluate", run, "--test", tmp_path / "?.csv", *label)
    assert scores(run) == scored


def test_what_a_killed_evaluation_left_is_removed(folder: Path) -> None:
    left = folder / "run" / ".evaluation.csv.test" / "test.zarr"
    code = (
        "import os, signal\n"
        "from pathlib import Path\n"
        "from bigsvm.prediction.like import prepared_test_set\n"
        "from bigsvm.readers import ReadOptions\n"
        f"with prepared_test_set({str(folder / 'test.csv')!r}, Path({str(folder / 'run')!r}),\n"
        "                       ReadOptions(label_column='class')):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(), timeout=HANGS)
    assert done.returncode == -signal.SIGKILL and left.is_dir()
    command("evaluate", folder / "run", "--test", folder / "test.csv", "--label-column", "class")
    assert not list((folder / "run").glob(".*"))


def test_one_model_is_scored_on_raw_files(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """That of a run as its last line; and one of `BigSVC`, which has no working set to show."""
    test = ("--test", folder / "other.csv", "--label-column", "class")
    command("evaluate", folder / "run", *test)
    of_run = capsys.readouterr().out.splitlines()
    run = {path.name for path in (folder / "run").iterdir()}
    model = folder / "run/model.safetensors"
    command("evaluate", model, *test)
    of_model = capsys.readouterr().out.splitlines()
    heading = next(k for k, line in enumerate(of_run) if not line)
    assert of_model == [str(model), of_run[1], *of_run[heading - 1 : -1]]
    assert {path.name for path in (folder / "run").iterdir()} == run, "nothing is left"
    rows = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
    labels = np.where(rows[:, 0] > 0.3, "up", "down")
    BigSVC(sigma=1.0).fit(rows, labels).to_model().save(tmp_path / "m.safetensors")
    pd.DataFrame(rows).assign(y=labels).to_csv(tmp_path / "rows.csv", index=False, header=False)
    command("evaluate", tmp_path / "m.safetensors", "--test", tmp_path / "rows.csv")
    assert capsys.readouterr().out.splitlines()[2].endswith(" -")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["prepare", "test.csv", "o.zarr", "--like", "run", "--scaling", "minmax"],
            "--scaling: ",
        ),
        (["prepare", "test.csv", "o.zarr", "--like", "none.zarr"], "none.zarr"),
        (["prepare", "none.csv", "o.zarr", "--like", "run"], "none.csv: there is no such file"),
        (["prepare", "test.csv", "bad.csv", "o.zarr", "--like", "run"], "neither 'g' nor 'h'"),
        (["prepare", "none*", "o.zarr", "--like", "run"], "none*: no file has such a name"),
        (["prepare", "bad.csv", "o.zarr", "--like", "run"], "neither 'g' nor 'h'"),
        (["prepare", "few.csv", "o.zarr", "--like", "run"], "no column 'fDist'"),
        (["evaluate", "run", "--test", "test.csv", "--follow"], "--follow: needs a store"),
        (["evaluate", "run", "--test", "t.zarr", "--label-column", "a"], "--label-column: is for"),
        (["evaluate", "none", "--test", "test.csv"], "none: there is no such run directory"),
        (["evaluate", "run", "--test", "test.csv", "--label-column", "fDist"], "is a feature"),
        (["evaluate", "run/model.safetensors"], "a model names no test set; --test"),
        (["evaluate", "run/model.safetensors", "run", "--test", "test.csv"], "run: is no model"),
        (
            ["evaluate", "run/model.safetensors", "--test", "t.zarr", "--picture", "o.png"],
            "--picture: is for run directories",
        ),
        (["evaluate", "run", "--test", "remark.csv"], "has no column 'class', which held the"),
        (
            ["evaluate", "old.safetensors", "--test", "remark.csv"],
            "'remark'; --label-column names another)",
        ),
        (["predict", "old.safetensors", "remark.csv", "o.csv"], "another, --no-labels says"),
    ],
)
def test_mistakes(
    folder: Path, arguments: list[str], words: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.chdir(folder)
    test = pd.read_csv("test.csv")
    test.assign(**{"class": "x"}).to_csv("bad.csv", index=False)
    test.drop(columns="fDist").to_csv("few.csv", index=False)
    renamed = test.rename(columns={"class": "particle"})
    renamed.assign(remark="far out").to_csv("remark.csv", index=False)
    model = load_model("run")
    about = {key: value for key, value in model.about.items() if key != "label_column"}
    replace(model, about=about).save("old.safetensors")  # as older versions made them
    assert cli.main(arguments) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("error:") == 1, error
    assert not Path("o.zarr").exists() and not list(folder.glob("**/.*"))
