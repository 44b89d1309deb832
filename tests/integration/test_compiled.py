"""Where compiled code cannot be cached the commands work all the same."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from bigsvm.core import compiled
from bigsvm.kernels import fill_panels
from bigsvm.readers.labels import _gather
from tests.support.trainings import REPOSITORY

# What each of them imports once it is at work.
AT_WORK = (
    "bigsvm.training.build",
    "bigsvm.tuning.local",
    "bigsvm.tuning.dask",
    "bigsvm.models.scoring",
    "bigsvm.models.model",
    "bigsvm.models.double_precision",
    "bigsvm.prediction.worker",
    "bigsvm.backends.worker",
    "bigsvm.estimator.classifier",
    "bigsvm.readers.csv",
    "bigsvm.readers.libsvm",
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package beside whose files nothing can be written."""
    folder = tmp_path_factory.mktemp("installed")
    shutil.copytree(
        REPOSITORY / "bigsvm",
        folder / "bigsvm",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    for package in [folder / "bigsvm", *(folder / "bigsvm").rglob("*")]:
        if package.is_dir():  # unlike permissions, this holds for root, too
            (package / "__pycache__").touch()
    return folder


def run(installed: Path, cwd: Path, *arguments: str, **variables: str) -> Mapping[str, str]:
    homeless = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA", "XDG", "HOME"))}
    # As `~` stays where a user has neither HOME nor an entry in the list of users.
    homeless |= {"XDG_CACHE_HOME": "~/.cache", "PYTHONPATH": str(installed)}
    homeless |= {"TMPDIR": str(cwd / "tmp"), "PYTHONDONTWRITEBYTECODE": "1"}
    (cwd / "tmp").mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=homeless | variables,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert not (cwd / "~").exists()
    return {"out": done.stdout, "err": done.stderr}


def test_every_part_can_be_imported(installed: Path, tmp_path: Path) -> None:
    said = run(installed, tmp_path, "-c", f"import {', '.join(AT_WORK)}")["err"]
    assert said.count("\n") == 1 and "NUMBA_CACHE_DIR" in said


def test_a_private_folder_serves_the_next_start(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("1,2,yes\n3,4,no\n" * 20)
    command = ("-m", "bigsvm.prepare", "rows.csv")
    first = run(installed, tmp_path, *command, "first.zarr")["err"]
    private = tmp_path / "tmp" / f"bigsvm-numba-{os.getuid()}"
    assert private.stat().st_mode & 0o777 == 0o700
    assert "\ncompiling" in first
    warnings = [line for line in first.splitlines() if line.startswith("warning")]
    assert len(warnings) == 1 and str(private) in warnings[0]
    before = sorted(private.rglob("*.nbc"))
    assert before
    second = run(installed, tmp_path, *command, "second.zarr")["err"]
    assert "compiling" not in second
    assert sorted(private.rglob("*.nbc")) == before


@pytest.mark.parametrize("planted", ["open to others", "a file", "a symlink"])
def test_a_folder_that_is_not_private_is_not_used(
    planted: str, installed: Path, tmp_path: Path
) -> None:
    private = tmp_path / "tmp" / f"bigsvm-numba-{os.getuid()}"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    private.parent.mkdir()
    if planted == "open to others":
        private.mkdir()
        private.chmod(0o777)
    elif planted == "a file":
        private.touch()
    else:
        private.symlink_to(elsewhere)
    program = (
        "import numpy as np; from bigsvm.readers.labels import _gather;"
        "print(_gather(np.ones(2, np.uint8), np.array([[0, 2]]), 2).sum())"
    )
    said = run(installed, tmp_path, "-c", program)
    assert "every start compiles again" in said["err"] and said["err"].count("\n") == 1
    assert said["out"] == "2\n"
    assert not any(elsewhere.iterdir())
    assert planted != "open to others" or not any(private.iterdir())


def test_a_named_folder_is_used_and_nothing_is_said(installed: Path, tmp_path: Path) -> None:
    said = run(
        installed, tmp_path, "-c", "import bigsvm.kernels", NUMBA_CACHE_DIR=str(tmp_path / "cache")
    )
    assert said["err"] == "" and any((tmp_path / "cache").iterdir())


def test_a_full_disk_at_the_cache_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _gather(np.ones(2, np.uint8), np.array([[0, 2]]), 2)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    compiled._warn.cache_clear()
    # Not what writes the file: of code that was loaded there is nothing to be written again.
    monkeypatch.setattr(_gather._cache, "_save_overload", full)
    for _ in range(2):
        _gather._cache.save_overload(_gather.signatures[0], next(iter(_gather.overloads.values())))
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "No space left" in said and "NUMBA_CACHE_DIR" in said


def test_a_torn_cache_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    _gather(np.ones(2, np.uint8), np.array([[0, 2]]), 2)

    def torn(*_: object) -> None:
        raise EOFError("Ran out of input")

    monkeypatch.setattr(_gather._cache._cache_file, "load", torn)
    assert _gather._cache.load_overload(_gather.signatures[0], _gather.targetctx) is None


def test_a_change_in_any_file_compiled_from_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiles are in another file than the functions that they are compiled into."""
    fill_panels(np.zeros((1, 1), np.float32), np.zeros((1, 1, 16), np.float32))
    cache = compiled._Cache(fill_panels.py_func)
    assert "tiles.py" in str(compiled._sources())
    signature = fill_panels.signatures[0]
    context = fill_panels.targetctx
    assert cache.load_overload(signature, context) is not None
    changed = [(name, time + (name == "tiles.py")) for name, time in compiled._sources()]
    monkeypatch.setattr(compiled, "_sources", lambda: tuple(changed))
    later = compiled._Cache(fill_panels.py_func)
    assert later.load_overload(signature, context) is None


def test_functions_of_others_are_cached_as_before() -> None:
    from numba.core import caching, dispatcher

    assert type(dispatcher.FunctionCache(test_a_torn_cache_is_made_again)) is caching.FunctionCache
    assert type(_gather._cache) is compiled._Cache


def test_no_home_and_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bigsvm.core.errors import UserError
    from bigsvm.preparation.sources import cache_dir

    monkeypatch.delenv("BIGSVM_CACHE", raising=False)

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(UserError, match="BIGSVM_CACHE"):
        cache_dir()
