"""Several trainings of one source on an empty cache, as a job array starts them."""

import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from bigsvm.config import DataConfig, PrepareOptions
from bigsvm.core.errors import UserError
from bigsvm.files.staging import staging_dir
from bigsvm.preparation.data_sets import resolve_data
from bigsvm.preparation.pipeline import prepare
from tests.support.trainings import HANGS, environment, summary

CONFIG = """
data: {source: synthetic, prepare: {rows: 30000, features: 5, test_rows: 500}}
model: {kernel: {sigma: 1}}
solver: {max_iterations: 30, threads: 1}
"""


def test_the_others_wait_for_the_first(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG)
    trainings = [
        subprocess.Popen(
            [sys.executable, "-m", "bigsvm.train", "c.yaml", "--run-dir", f"run{k}"],
            cwd=tmp_path,
            env=environment() | {"BIGSVM_CACHE": str(tmp_path / "cache")},
            stderr=subprocess.PIPE,
            text=True,
        )
        for k in range(3)
    ]
    said = [training.communicate(timeout=HANGS)[1] for training in trainings]
    assert [training.returncode for training in trainings] == [0, 0, 0], said
    found = [summary(tmp_path / f"run{k}") for k in range(3)]
    assert len({values["accuracy"] for values in found}) == 1
    assert len(list((tmp_path / "cache" / "stores").iterdir())) == 1


@pytest.mark.parametrize("ending", ["it is made", "it is not"])
def test_waiting_ends_with_the_other(
    ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "s.zarr"
    options = PrepareOptions(rows=50, features=2)
    holding = threading.Event()

    def other() -> None:
        with staging_dir(store, "spill"):
            holding.set()
            time.sleep(1)
        if ending == "it is made":
            with suppress(UserError):  # the one that waited was faster
                prepare("synthetic", store, options)

    thread = threading.Thread(target=other)
    thread.start()
    holding.wait()
    data = DataConfig(source="synthetic", train=str(store), prepare=options)
    assert resolve_data(data).train == str(store)
    thread.join()
    assert store.is_dir()
    said = capsys.readouterr().err
    assert said.startswith("waiting: ") and str(store) in said and said.count("\n") == 1
    assert os.listdir(tmp_path) == ["s.zarr"]  # noqa: PTH208
