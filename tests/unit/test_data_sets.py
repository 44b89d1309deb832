"""The store of a `data.source`: made again for other content, and for nothing else."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from bigsvm import cli
from bigsvm.config import DataConfig, PrepareOptions
from bigsvm.core.errors import UserError
from bigsvm.preparation.data_sets import resolve_data
from bigsvm.prepare import main
from bigsvm.stores.store import open_dataset
from tests.support import small_run
from tests.support.trainings import wait_until

OLD = "1,2,0\n3,4,1\n5,6,0\n"
NEW = "1,2,0\n3,9,1\n5,6,0\n"  # as long as the old one


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BIGSVM_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    Path("mine.csv").write_text(OLD)
    return tmp_path


def rows(**data: str) -> np.ndarray:
    plain = PrepareOptions(scaling="none")
    train = resolve_data(DataConfig(source="mine.csv", prepare=plain, **data)).train
    assert isinstance(train, str)
    with open_dataset(train) as made:
        return made.read(0, made.n)


def rewritten() -> None:
    """The file with other content, of the same size and time."""
    time = Path("mine.csv").stat().st_mtime_ns
    Path("mine.csv").write_text(NEW)
    os.utime("mine.csv", ns=(time, time))


def test_a_file_that_was_rewritten_is_prepared_anew() -> None:
    assert rows()[1, 1] == 4
    rewritten()
    assert rows()[1, 1] == 9


def test_a_file_of_the_same_name_elsewhere(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rows()[1, 1] == 4
    (here / "other").mkdir()
    monkeypatch.chdir(here / "other")
    Path("mine.csv").write_text(NEW)
    assert rows()[1, 1] == 9


def test_a_named_source_from_another_folder(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for folder, value in (("a", 1), ("b", 7)):
        (here / folder).mkdir()
        (here / folder / "heart_scale").write_text(f"1 1:{value}\n-1 1:2\n1 1:3\n")
        monkeypatch.setenv("BIGSVM_DATA", str(here / folder))
        train = resolve_data(DataConfig(source="heart")).train
        assert isinstance(train, str)
        with open_dataset(train) as made:
            found.append(float(made.read(0, 1)[0, 0]))
    assert found == [1, 7]


def test_the_same_content_is_prepared_once() -> None:
    first = resolve_data(DataConfig(source="mine.csv")).train
    os.utime("mine.csv", (0, 0))
    assert resolve_data(DataConfig(source="mine.csv")).train == first
    assert resolve_data(DataConfig(source=str(Path("mine.csv").absolute()))).train == first


@pytest.mark.parametrize("store", ["s.zarr", "s.h5"])
def test_a_store_of_the_users_own_is_not_replaced(store: str) -> None:
    assert rows(train=store)[1, 1] == 4
    os.utime("mine.csv", (0, 0))
    assert rows(train=store)[1, 1] == 4
    rewritten()
    with pytest.raises(UserError, match=rf"{store}: was made from 'mine.csv', .*changed.*remove"):
        rows(train=store)


def test_a_store_made_by_the_command_line_is_the_same() -> None:
    assert main(["mine.csv", "s.zarr", "--label-column", "2", "--positive", "1", "--quiet"]) == 0
    options = {"label_column": 2, "positive": 1}
    data = DataConfig.model_validate({"source": "mine.csv", "train": "s.zarr", "prepare": options})
    assert resolve_data(data).train == "s.zarr"


def test_a_store_of_the_users_own_stays_when_the_raw_file_is_gone() -> None:
    assert rows(train="s.zarr")[1, 1] == 4
    Path("mine.csv").unlink()
    assert rows(train="s.zarr")[1, 1] == 4


@pytest.mark.parametrize(
    ("command", "number"), [("train", signal.SIGINT), ("tune", signal.SIGTERM)]
)
def test_interrupted_while_it_is_prepared(here: Path, command: str, number: int) -> None:
    """There is nothing to save yet: it leaves, and leaves nothing."""
    data = "{source: synthetic, train: s.zarr, prepare: {rows: 100000000}}"
    Path("c.yaml").write_text(f"data: {data}\nmodel: {{kernel: {{sigma: 1}}}}\n")
    before = sorted(here.iterdir())
    process = small_run.start(f"bigsvm.{command}", "c.yaml", "--run-dir", "run")
    try:
        spilled = here / ".s.zarr.spill" / "train.rows"
        wait_until(lambda: spilled.exists() and spilled.stat().st_size > 0, process)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)  # to prepare all of it takes an hour
    finally:
        process.kill()
    assert process.returncode == 128 + number
    assert "Traceback" not in said and "saving" not in said
    assert sorted(here.iterdir()) == before


def test_a_run_knows_its_test_set_from_any_folder(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("mine.csv").write_text("".join(f"{k},{k % 3},{k % 2}\n" for k in range(40)))
    assert main(["mine.csv", "s.zarr", "--test-rows", "10", "--quiet"]) == 0
    data, model = "{train: s.zarr, test: {path: s.zarr/test}}", "{kernel: {sigma: 1}}"
    Path("c.yaml").write_text(f"data: {data}\nmodel: {model}\n")
    assert cli.main(["train", "c.yaml", "--run-dir", "run"]) == 0
    (here / "other").mkdir()
    monkeypatch.chdir(here / "other")
    assert cli.main(["evaluate", "../run"]) == 0
    assert cli.main(["train", "../run/config.yaml", "--run-dir", "../run"]) == 0
