"""At the terminal: help, versions, near words, and a last line that says what to do next."""

import shlex
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml

from bigsvm import __version__, cli
from bigsvm.config import SolverConfig
from bigsvm.config.starter import suggested_interval
from bigsvm.training.next_step import TrainCommand, next_step
from tests.support.real_table import command, magic_table
from tests.support.trainings import Train, environment, summary


def test_the_version(capsys: pytest.CaptureFixture) -> None:
    command("--version")
    assert capsys.readouterr().out == f"bigsvm {__version__}\n"


def test_help_of_all_and_of_one(capsys: pytest.CaptureFixture) -> None:
    command("help")
    every = capsys.readouterr().out
    assert all(f"\n  {name}" in every for name in cli.COMMANDS)
    for name in cli.COMMANDS:
        with pytest.raises(SystemExit) as left:
            cli.main(["help", name])
        assert left.value.code == 0
        assert capsys.readouterr().out.startswith(f"usage: bigsvm {name} ")


def test_a_module_names_itself_as_it_was_called() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bigsvm.export", "--help"],
        env=environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.startswith("usage: python -m bigsvm.export ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["trian", "c.yaml"], "unknown command 'trian'; did you mean 'train'?"),
        (["xyz"], "unknown command 'xyz'; the commands are: prepare, train"),
        (["help", "trian"], "did you mean 'train'?"),
        (["prepare", "a", "b", "--lable-colum", "x"], "did you mean '--label-column'?"),
        (["predict", "m", "i", "o", "--overwrit=1"], "overwrit"),
        (["evaluate", "runs/x", "--out", "y"], "arguments: --out y; see bigsvm evaluate --help"),
        (["train", "c.yaml", "--qqq"], "unrecognized arguments: --qqq; see bigsvm train --help"),
    ],
)
def test_near_words(arguments: list[str], words: str, capsys: pytest.CaptureFixture) -> None:
    assert cli.main(arguments) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1


def test_a_setting_names_the_nearest_key(config: Path, capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["train", str(config), "--set", "solver.max_iteration=5"]) == 2
    assert "did you mean 'max_iterations'?" in capsys.readouterr().err
    assert cli.main(["train", str(config), "--set", "time_limit=5"]) == 2
    assert "did you mean 'solver.time_limit'?" in capsys.readouterr().err


def test_a_store_is_no_config(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "my data.zarr").mkdir()
    assert cli.main(["train", str(tmp_path / "my data.zarr")]) == 2
    assert f"bigsvm init '{tmp_path}/my data.zarr' writes one" in capsys.readouterr().err


def test_the_last_line_names_the_next_command(train: Train, tmp_path: Path, config: Path) -> None:
    first = train(tmp_path / "run", "solver.max_iterations=200").stdout.splitlines()[-1]
    assert first.startswith("not converged (gap ") and "solver.max_iterations was reached" in first
    line = first.partition("resumes: ")[2]
    assert shlex.split(line) == [
        "python", "-m", "bigsvm.train", str(config), "--set", "solver.max_iterations=400",
        "--run-dir", str(tmp_path / "run"),
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, *shlex.split(line)[1:]], env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert summary(tmp_path / "run")["iterations"] == 400
    last = train(tmp_path / "run").stdout.splitlines()[-1]
    assert last.startswith("converged: nothing is left to do; next: python -m bigsvm.evaluate")


def test_why_it_ended() -> None:
    made = TrainCommand("bigsvm ", Path("my config.yaml"), ["model.C=1"], None)
    facts = {"gap": 0.5, "relative_gap": 0.25, "iterations": 1200}
    told = [
        next_step(facts | {"status": status}, made, Path("runs/x"), SolverConfig(), 34)
        for status in ("interrupted", "time_limit", "max_iterations")
    ]
    assert told[0] == (
        "interrupted: saved at iteration 1,200 in runs/x (34 iterations since then are taken again)"
        "; the same command resumes: bigsvm train 'my config.yaml' --set model.C=1"
    )
    assert "the same command resumes from iteration 1,166, for as long again: " in told[1]
    assert "a larger one resumes from iteration 1,166: bigsvm train" in told[2]
    assert "solver.time_limit was reached" in told[1] and "gap 2.5e-01, tolerance 0.01" in told[1]
    assert made.line(max_iterations=7).endswith("--set model.C=1 --set solver.max_iterations=7")


@pytest.mark.parametrize("kind", ["store", "file"])
def test_init_writes_a_config_that_trains(
    kind: str, data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BIGSVM_CACHE", str(tmp_path / "cache"))
    table = magic_table(data_dir, 1000)
    table[["class", *table.columns[:-1]]].to_csv("magic.csv", index=False)
    options = ["--label-column", "class"]
    if kind == "store":
        split = ["--scaling", "standard", "--test-fraction", 0.25, "--quiet"]
        command("prepare", "magic.csv", "magic.zarr", *options, *split)
        command("init", "magic.zarr", "--out", "magic.yaml")
    else:
        command("init", "magic.csv", *options)
    assert "next: bigsvm train magic.yaml" in capsys.readouterr().out
    text = Path("magic.yaml").read_text()
    assert "10 features; classes: g 6" in text and "memory_limit: " in text
    command("train", "magic.yaml", "--set", "solver.tolerance=0.1")
    found = summary(tmp_path / "runs" / "magic")
    assert found["status"] == "converged" and found["accuracy"] > 0.8


def test_init_takes_a_folder_of_messy_parts(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Each refusal names the option that helps, and `init` takes it, as `prepare` does."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BIGSVM_CACHE", str(tmp_path / "cache"))
    table = magic_table(data_dir, 1000).rename(columns={"fSize": "its size"})
    table.insert(0, "the day", pd.Timestamp("2025-01-01"))
    table.insert(1, "kind", table["fAlpha"].gt(20).map({True: "wide", False: "narrow"}))
    table.loc[::7, "fWidth"] = None
    Path("my parts").mkdir()
    # The first part has one class only; and the index of the frame, which is saved, is no feature.
    table = table.sort_values("class")
    table[:500].to_parquet("my parts/1.parquet")
    table[500:].to_parquet("my parts/2.parquet")
    asked = ["init", "my parts", "--label-column", "class"]
    for words, options in (
        ("leave it out with --ignore 'the day'", ["--ignore", "the day"]),
        ("--categorical kind makes indicators", ["--categorical", "kind"]),
        ("--missing drop, mean, median or indicator", ["--missing", "indicator"]),
    ):
        assert cli.main(asked) == 2
        assert words in capsys.readouterr().err
        asked += options
    command(*asked)
    said = capsys.readouterr().out.strip()
    assert said == "written to my parts.yaml; next: bigsvm train 'my parts.yaml'"
    written = yaml.safe_load(Path("my parts.yaml").read_text())
    assert written["data"]["source"] == "my parts"
    assert written["data"]["prepare"]["ignore"] == ["the day"]
    assert "# 1,000 rows, 13 features; classes: g " in Path("my parts.yaml").read_text()
    assert written["run"] == {"dir": "runs/my parts", "snapshot_every": 50}
    monkeypatch.setattr("bigsvm.training.loop.FIRST_REPORT_SECONDS", 0.0)  # it takes 0.1 s or less
    command(*shlex.split(said.partition("next: bigsvm ")[2]))
    run = tmp_path / "runs" / "my parts"
    assert summary(run)["accuracy"] > 0.75
    assert len(list((run / "snapshots").iterdir())) >= 5, "a curve to look at"
    reports = (run / "metrics.jsonl").read_text().splitlines()
    assert len(reports) >= 3, "of a training shorter than half a second, too"
    assert cli.main(["init", str(run / "none.zarr"), "--missing", "mean"]) == 2
    assert "--missing: is for raw files, and" in capsys.readouterr().err


def test_a_store_prepared_otherwise_names_the_option(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    magic_table(data_dir, 600).to_csv("m.csv", index=False)
    command("prepare", "m.csv", "m.zarr", "--test-fraction", 0.2)
    command("init", "m.zarr")
    command("train", "m.yaml")
    command("prepare", "m.csv", "m.zarr", "--test-fraction", 0.2, "--seed", 1, "--overwrite")
    asked = ["train", "m.yaml", "--set", "solver.tolerance=0.005"]
    assert cli.main(asked) == 2
    error = capsys.readouterr().err
    assert "m.zarr) was prepared with other options: seed was 0 and is now 1; use another" in error
    magic_table(data_dir, 500, seed=7).to_csv("m.csv", index=False)
    command("prepare", "m.csv", "m.zarr", "--test-fraction", 0.2, "--overwrite")
    assert cli.main(asked) == 2
    error = capsys.readouterr().err
    assert "the content of data.train" in error and "rows was 480 and is now 400" in error


@pytest.mark.parametrize(
    ("rows", "every"), [(None, 5000), (10**7, 5000), (60_000, 2000), (1258, 50), (90, 10)]
)
def test_init_asks_for_ten_snapshots_or_more(rows: int | None, every: int) -> None:
    assert suggested_interval(rows) == every


def test_init_on_rare_positives_and_on_mistakes(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    command("init", data_dir / "ijcnn1.trn.bz2")
    assert "class_weight: balanced" in Path("ijcnn1.yaml").read_text()
    Path("one.csv").write_text("a,b,class\n" + "1,2,yes\n3,4,yes\n")
    cases = [
        (["init", str(data_dir / "ijcnn1.trn.bz2")], "ijcnn1.yaml: exists already; --overwrite"),
        (["init", "none.csv"], "none.csv: there is no such file or store"),
        (["init", "one.csv"], "all of its 2 labels are 'yes'"),
        (["init", "one.csv", "--out", "x.json"], "name it *.yaml"),
        (["init", "one.csv", "--label-column", "z"], "no column 'z'"),
        (["init", str(data_dir / "covtype.data.gz"), "--label-column", "0"], "different labels"),
    ]
    for arguments, words in cases:
        assert cli.main(arguments) == 2
        error = capsys.readouterr().err
        assert words in error and error.count("error:") == 1, (arguments, error)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ijcnn1.yaml", "one.csv"]
