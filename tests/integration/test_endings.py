"""How trainings begin again and end: nothing is mixed up, and nothing that was done is lost."""

import threading
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import yaml

from bigsvm import cli, load_model
from bigsvm.config import PrepareOptions
from bigsvm.preparation.pipeline import prepare
from bigsvm.solvers.solve import Outcome
from bigsvm.training import evaluation
from bigsvm.training.loop import Training
from bigsvm.training.run_dir import RunDir
from tests.support.trainings import everything, summary

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3)).astype(np.float32)
SIDE = (X[:, 0] * X[:, 1] + 0.3 * RNG.normal(size=120) > 0).astype(int)


def arrays(path: Path, labels: Any = (0, 1), x: np.ndarray = X) -> Path:
    path.unlink(missing_ok=True)
    with h5py.File(path, "w") as file:
        file["X"], file["y"] = x, np.array(labels)[SIDE[: len(x)]]
    return path


def config(folder: Path, data: dict[str, Any], **sections: Any) -> Path:
    path = folder / "c.yaml"
    values: dict[str, Any] = {
        "data": data,
        "model": {"C": 10, "kernel": {"name": "rbf", "sigma": 1.0}},
        "solver": {"max_iterations": 50, "threads": 1},
        "run": {"dir": str(folder / "run"), "snapshot_every": 20},
    }
    path.write_text(yaml.safe_dump(values | sections))
    return path


def test_renamed_classes_are_another_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The content was the same, and so later snapshots had other classes than earlier ones."""
    store = arrays(tmp_path / "s.h5", (b"cat", b"dog"))
    path = str(config(tmp_path, {"train": str(store)}))
    assert cli.main(["train", path]) == 0
    before = everything(tmp_path / "run")
    arrays(tmp_path / "s.h5", (b"no", b"yes"))
    capsys.readouterr()
    more = ["train", path, "--set", "solver.max_iterations=80"]
    assert cli.main(more) == 2
    said = capsys.readouterr().err
    assert "classes was ['cat', 'dog'] and is now ['no', 'yes']" in said
    assert said.count("\n") == 1
    assert everything(tmp_path / "run") == before
    arrays(tmp_path / "s.h5", (b"cat", b"dog"))
    assert cli.main(more) == 0
    assert load_model(tmp_path / "run" / "model.safetensors").classes == ("cat", "dog")


def test_renamed_features_are_another_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(f"{k},{k % 5},{k % 2}\n" for k in range(40))
    path = str(config(tmp_path, {"train": str(tmp_path / "s.zarr")}))
    for names, code in (("a,b", 0), ("a,c", 2)):
        (tmp_path / "s.csv").write_text(f"{names},class\n{rows}")
        prepare(tmp_path / "s.csv", tmp_path / "s.zarr", PrepareOptions(), overwrite=True)
        capsys.readouterr()
        assert cli.main(["train", path, "--set", "solver.max_iterations=5"]) == code
    assert "the feature names of data.train" in capsys.readouterr().err


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_test_set_is_checked_before_the_training(
    value: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = X[:20].copy()
    wrong[7, 1] = value
    data = {
        "train": str(arrays(tmp_path / "s.h5")),
        "test": str(arrays(tmp_path / "t.h5", x=wrong)),
    }
    assert cli.main(["train", str(config(tmp_path, data))]) == 2
    said = capsys.readouterr().err
    assert "t.h5" in said and "row 7, column 1" in said and said.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_test_set_that_goes_away_takes_only_its_score_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store, test = arrays(tmp_path / "s.h5"), arrays(tmp_path / "t.h5", x=X[:20])
    path = str(config(tmp_path, {"train": str(store), "test": str(test)}))

    def run_and_lose_it(training: Training) -> Outcome:
        test.rename(tmp_path / "away.h5")
        return whole_run(training)

    whole_run = Training.run
    monkeypatch.setattr(Training, "run", run_and_lose_it)
    assert cli.main(["train", path]) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error")]
    assert len(said) == 1 and "t.h5" in said[0] and "its model saved" in said[0]
    run_dir = tmp_path / "run"
    assert summary(run_dir)["status"] == "max_iterations" and "accuracy" not in summary(run_dir)
    assert cli.main(["inspect", str(run_dir)]) == 0
    assert "max_iterations" in capsys.readouterr().out
    command = ["evaluate", str(run_dir), "--test", str(tmp_path / "away.h5"), "--follow"]
    assert cli.main(command) == 0
    monkeypatch.undo()
    (tmp_path / "away.h5").rename(test)
    assert cli.main(["train", path]) == 0
    assert 0 < summary(run_dir)["accuracy"] <= 1


def test_following_ends_after_the_trainer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed, it leaves neither a summary nor its lock."""
    store, test = arrays(tmp_path / "s.h5"), arrays(tmp_path / "t.h5", x=X[:20])
    path = str(config(tmp_path, {"train": str(store), "test": str(test)}))
    assert cli.main(["train", path]) == 0
    run_dir = RunDir(tmp_path / "run")
    run_dir.summary.unlink()
    monkeypatch.setattr(evaluation, "SECONDS_AFTER_TRAINER", 0.5)
    monkeypatch.setattr(evaluation, "POLL_SECONDS", 0.2)
    threading.Thread(target=hold_for, args=(run_dir, 3.0)).start()
    begin = time.monotonic()
    assert cli.main(["evaluate", str(run_dir.path), "--follow"]) == 1
    assert time.monotonic() - begin > 2
    assert "trainer ended without a summary" in capsys.readouterr().err
    assert (run_dir.path / "evaluation.csv").exists()
    # Where none was ever seen, it is given longer.
    monkeypatch.setattr(evaluation, "SECONDS_WITHOUT_TRAINER", 1.0)
    assert cli.main(["evaluate", str(run_dir.path), "--follow"]) == 1


def hold_for(run_dir: RunDir, seconds: float) -> None:
    with run_dir.locked():
        time.sleep(seconds)


def test_a_look_at_the_lock_turns_no_trainer_away(tmp_path: Path) -> None:
    run_dir = RunDir(tmp_path / "run")
    assert run_dir.is_held() is None
    run_dir.path.mkdir()
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            run_dir.is_held()

    lookers = [threading.Thread(target=look) for _ in range(2)]
    for looker in lookers:
        looker.start()
    try:
        for _ in range(20):
            with run_dir.locked():
                assert run_dir.is_held()
    finally:
        stop.set()
        for looker in lookers:
            looker.join()
    assert run_dir.is_held() is False


def test_after_an_overflow_the_corrected_config_is_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = arrays(tmp_path / "s.h5", x=X * 1e4)
    poly = {"name": "poly", "degree": 20, "gamma": 1.0, "coef0": 1.0}
    path = str(config(tmp_path, {"train": str(store)}, model={"C": 1, "kernel": poly}))
    assert cli.main(["train", path]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    corrected = [path, "--set", "model.kernel={name: rbf, sigma: 10000.0}"]
    assert cli.main(["train", *corrected]) == 0
    assert "warning" not in capsys.readouterr().err
    assert load_model(tmp_path / "run" / "model.safetensors").kernel["name"] == "rbf"
    # Now it has taken steps, so that another model is another run.
    assert cli.main(["train", *corrected, "--set", "model.C=3"]) == 2
    assert "belongs to a different config" in capsys.readouterr().err


@pytest.mark.parametrize("left", [[], ["snapshots"], ["model.safetensors"]], ids=str)
def test_a_run_that_never_took_a_step_takes_a_corrected_config(
    left: list[str], tmp_path: Path
) -> None:
    store = arrays(tmp_path / "s.h5")
    path = str(config(tmp_path, {"train": str(store)}))
    assert cli.main(["train", path]) == 0
    run_dir = RunDir(tmp_path / "run")
    for checkpoint in run_dir.checkpoints.iterdir():
        if checkpoint.stem != "checkpoint-0000000000":
            checkpoint.unlink()
    assert len(list(run_dir.checkpoints.iterdir())) == 1
    if "snapshots" not in left:
        for snapshot in run_dir.snapshots.iterdir():
            snapshot.unlink()
    if "model.safetensors" not in left:
        run_dir.model.unlink()
    assert cli.main(["train", path, "--set", "model.C=3"]) == (2 if left else 0)
