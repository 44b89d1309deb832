"""Every mistake users were seen to make, and more: one line says which, and nothing is lost."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from bigsvm import cli
from bigsvm.config import PrepareOptions
from bigsvm.preparation.pipeline import prepare
from tests.support import bad_commands, bad_configs, bad_data, bad_sources
from tests.support import bad_files as bad
from tests.support.trainings import environment, everything

pytestmark = pytest.mark.core

CASES = bad_configs.CASES | bad_data.CASES | bad_sources.CASES | bad_commands.CASES


@pytest.fixture(scope="session")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, a config and a run that are all right."""
    folder = tmp_path_factory.mktemp("good")
    (folder / "good.csv").write_text(bad.CSV)
    (folder / "good.yaml").write_text(bad.config())
    options = PrepareOptions()
    prepare(folder / "good.csv", folder / "good.zarr", PrepareOptions(test_fraction=0.25))
    prepare(folder / "good.csv", folder / "good.h5", options)
    prepare("synthetic", folder / "good.h5.zarr", PrepareOptions(rows=40, features=2))
    done = subprocess.run(
        [sys.executable, "-m", "bigsvm.train", "good.yaml", "--run-dir", "run"],
        cwd=folder, env=environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def here(
    good: Path,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """A copy of it, as the current folder."""
    monkeypatch.setenv("BIGSVM_CACHE", str(tmp_path_factory.mktemp("cache")))
    folder = tmp_path / "a folder" / "ü"
    shutil.copytree(good, folder)
    monkeypatch.chdir(folder)
    return folder


def names_and_content(here: Path) -> list[object]:
    """All there is in this folder and around it."""
    around = here.parent.parent
    return [sorted(around.rglob("*")), everything(around)]


def check(name: str, here: Path, attempt: Callable[[Sequence[str]], tuple[int, str]]) -> None:
    case = CASES[name]
    for file, content in case.files.items():
        bad.put(here / file, content)
    before = names_and_content(here)
    code, said = attempt(shlex.split(case.command))
    said = said.removeprefix("compiling; only the first start takes so long\n")
    if not case.words:
        assert code == 0, said
        return
    assert code == 2, said
    assert said.startswith("error: "), said
    assert said.count("\n") == 1, said
    for word in case.words:
        assert word in said
    assert names_and_content(here) == before, "a mistake leaves everything as it was"


@pytest.mark.parametrize("name", CASES)
def test_one_line_says_what_is_wrong(
    name: str, here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def attempt(arguments: Sequence[str]) -> tuple[int, str]:
        return cli.main(arguments), capfd.readouterr().err

    check(name, here, attempt)


@pytest.mark.parametrize(
    "name",
    [
        "config: a key twice",
        "set: wrong value",
        "arrays: NaN",
        "read: ragged, short",
        "model: a header of 10 GB",
        "predict: other number of features",
        "evaluate: not there",
        "command: no config",
    ],
)
def test_the_same_from_a_shell(name: str, here: Path) -> None:
    def attempt(arguments: Sequence[str]) -> tuple[int, str]:
        module = [sys.executable, "-m", f"bigsvm.{arguments[0]}"]
        done = subprocess.run(
            [*module, *arguments[1:]], capture_output=True, text=True, env=environment()
        )
        return done.returncode, done.stderr

    check(name, here, attempt)


def test_a_name_that_is_no_text(here: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bigsvm.prepare", "good.csv", b"\xff.zarr"],
        capture_output=True,
        env=environment() | {"PYTHONIOENCODING": "utf-8:strict"},
    )
    assert done.returncode == 0, done.stderr
    assert Path(os.fsdecode(b"\xff.zarr")).is_dir()
