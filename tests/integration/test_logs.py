"""-q, -v and --log-file, as all commands have them."""

import re
from pathlib import Path

import pytest

from bigsvm import cli
from tests.support.small_run import make_store
from tests.support.trainings import Train, one_line

TIMED = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ (INFO|WARNING|ERROR|DEBUG) "


def test_a_log_file_has_all_messages_with_times(train: Train, tmp_path: Path) -> None:
    file = tmp_path / "train.log"
    short = "solver.max_iterations=700"
    done = train(tmp_path / "run", short, "--quiet", "--log-file", str(file))
    assert done.stderr == ""
    train(tmp_path / "run", "--log-file", str(file))
    lines = file.read_text().splitlines()
    assert all(re.match(TIMED, line) for line in lines)
    text = "\n".join(re.sub(TIMED, r"\1 ", line) for line in lines)
    assert "INFO max_iterations after 700 iterations" in text
    assert "INFO resuming at iteration 700" in text and "INFO converged after" in text
    assert "DEBUG" not in text
    refusal = train(tmp_path / "run", "model.C=3", "--log-file", str(file), code=2)
    assert (
        file.read_text().splitlines()[-1].endswith(one_line(refusal).replace("error: ", "ERROR "))
    )


def test_details_on_request(train: Train, tmp_path: Path) -> None:
    done = train(tmp_path / "run", "solver.max_iterations=400", "-v")
    assert re.search(r"^model: .*model-00000300.safetensors, [\d,]+ support", done.stderr, re.M)
    assert "checkpoint: " in done.stderr


def test_quiet_still_warns(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    store = make_store(tmp_path / "s.zarr", rows=90)
    capsys.readouterr()
    assert cli.main(["inspect", str(store), "-q"]) == 0
    assert cli.main(["inspect", str(tmp_path / "none"), "-q"]) == 2
    assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-q", "-v"], "--quiet and --verbose: choose one of them"),
        (["--log-file", "no/such/folder.log"], "--log-file no/such/folder.log: cannot be written"),
    ],
)
def test_mistakes(options: list[str], said: str, capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["inspect", "x", *options]) == 2
    assert f"error: {said}" in capsys.readouterr().err
