"""`evaluate` end to end: what it writes, in how many passes, and what it refuses."""

import csv
import signal
import time
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from bigsvm.core.errors import UserError
from bigsvm.evaluate import main
from bigsvm.kernels import block_of
from bigsvm.models import evaluation
from bigsvm.models.evaluation import evaluate_snapshots, final_scores
from bigsvm.models.model import load_model
from bigsvm.models.plots import accuracy_range
from bigsvm.models.scores import scores_of
from bigsvm.models.scoring import Scorer, chunks_of, score_chunks
from bigsvm.stores.store import Dataset, open_dataset
from bigsvm.training.evaluation import RunEvaluation
from tests.support import small_run
from tests.support.small_run import (
    add_snapshot,
    make_model,
    make_run,
    make_store,
    write_config,
    write_summary,
)
from tests.support.trainings import HANGS

PNG = b"\x89PNG\r\n\x1a\n"
SNAPSHOTS = {100: 40, 200: 90, 300: 70}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("data") / "s.zarr")


@pytest.fixture
def run(tmp_path: Path, store: Path) -> Path:
    return make_run(tmp_path / "small", store, SNAPSHOTS, final=(350, 75))


def table(run: Path) -> list[dict[str, str]]:
    with (run / "evaluation.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def refused(argv: list[object]) -> str:
    with pytest.raises(UserError) as mistake:
        main([str(argument) for argument in argv])
    assert "\n" not in str(mistake.value)
    return str(mistake.value)


def test_table_and_picture_of_a_run(run: Path, store: Path, capsys: pytest.CaptureFixture) -> None:
    assert main([str(run)]) == 0
    rows = table(run)
    assert list(rows[0]) == [
        "iteration", "accuracy", "balanced_accuracy", "f1", "auc", "n_support", "n_working",
    ]  # fmt: skip
    assert [int(row["iteration"]) for row in rows] == [100, 200, 300, 350]
    assert [int(row["n_support"]) for row in rows] == [40, 90, 70, 75]
    assert [int(row["n_working"]) for row in rows] == [80, 180, 140, 150]
    with open_dataset(store, "test") as data:
        X, signs = data.read(0, data.n), data.labels()
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "small" and len(shown) == 12
    made = ["evaluation.csv", "evolution.png", "confusion.csv", "curves.csv", "curves.png"]
    assert shown.pop() == "written: " + ", ".join(str(run / name) for name in made)
    for row, line, (iteration, n_support) in zip(
        rows, shown[2:6], [*SNAPSHOTS.items(), (350, 75)], strict=True
    ):
        model = make_model(store, iteration, n_support)
        expected = scores_of(signs, model.decision_function(X, scaled=True))
        assert float(row["accuracy"]) == expected.accuracy > 0.5
        assert float(row["balanced_accuracy"]) == expected.balanced_accuracy
        assert float(row["f1"]) == expected.f1
        assert float(row["auc"]) == expected.auc
        assert line.split()[:2] == [str(iteration), f"{100 * expected.accuracy:.2f}"]
    assert (run / "evolution.png").read_bytes().startswith(PNG)
    assert not [path for path in run.rglob(".*")]


def test_final_model_counts_once(tmp_path: Path, store: Path) -> None:
    run = make_run(tmp_path / "r", store, SNAPSHOTS, final=(300, 70))
    assert [row.iteration for row in RunEvaluation(run).evaluate_new()] == [100, 200, 300]
    assert main([str(run)]) == 0
    assert [int(row["iteration"]) for row in table(run)] == [100, 200, 300]


def test_a_final_model_alone_is_enough(tmp_path: Path, store: Path) -> None:
    run = make_run(tmp_path / "r", store, {}, final=(7, 30))
    assert main([str(run)]) == 0
    assert [int(row["iteration"]) for row in table(run)] == [7]


@pytest.mark.parametrize("name", ["rbf", "laplacian", "linear", "poly"])
def test_decisions_are_the_same_bits_alone_and_among_others(store: Path, name: str) -> None:
    kernel = {"name": name, "gamma": 0.5, "coef0": 1.0}
    models = [make_model(store, i, n, kernel=kernel) for i, n in {**SNAPSHOTS, 9: 500}.items()]
    with open_dataset(store, "test") as data:
        X = data.read(0, data.n)
        together = np.concatenate(
            [chunk.decisions for chunk in score_chunks(Scorer(models), chunks_of(data), "test")],
            axis=1,
        )
    assert together.shape == (4, len(X)) and len(np.unique(together)) > len(X)
    for model, among_others in zip(models, together, strict=True):
        alone = Scorer([model]).decisions(block_of(X))[0]
        assert alone.tobytes() == among_others.tobytes()
        assert alone.tobytes() == model.decision_function(X, scaled=True).tobytes()


def counted_reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    reads = []
    read = Dataset.read

    def counting(self: Dataset, start: int, stop: int) -> np.ndarray:
        reads.append((start, stop))
        return read(self, start, stop)

    monkeypatch.setattr(Dataset, "read", counting)
    return reads


def test_each_chunk_is_read_once(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = counted_reads(monkeypatch)
    assert main([str(run)]) == 0
    assert reads == [(0, 64), (64, 128), (128, 192), (192, 256), (256, 300)]


def test_snapshots_beyond_the_memory_go_in_groups_to_the_same_rows(
    run: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = sorted((run / "snapshots").iterdir())
    whole = evaluate_snapshots(paths, store)
    reads = counted_reads(monkeypatch)
    monkeypatch.setattr(evaluation, "PASS_BYTES", 2 * 8 * 300)
    assert evaluate_snapshots(paths, store) == whole
    assert len(reads) == 2 * 5


def test_accuracy_is_that_of_the_table(run: Path, store: Path) -> None:
    path = run / "model.safetensors"
    assert (
        final_scores(load_model(path), store)["accuracy"]
        == evaluate_snapshots([path], store)[0].accuracy
    )


def test_test_sets_of_the_users_own(tmp_path: Path, store: Path, run: Path) -> None:
    """Other names, other signs for the same labels; unscaled arrays for an unscaled model."""
    own = tmp_path / "own.h5"
    with open_dataset(store, "test") as data, h5py.File(own, "w") as file:
        file["rows"] = data.read(0, data.n)
        file["labels"] = data.labels()
    model = make_model(store, 5, 50, scaling=None)
    plain = tmp_path / "plain"
    (plain / "snapshots").mkdir(parents=True)
    model.save(plain / "snapshots" / "model-00000005.safetensors")
    write_config(plain, {"test": {"path": str(own), "x": "rows", "y": "labels"}})
    assert main([str(plain)]) == 0
    scaled = evaluate_snapshots([add_snapshot(run, store, 5, 50)], store)[0]
    assert float(table(plain)[0]["accuracy"]) == scaled.accuracy
    # Labels 1 and -1 the other way round: the decision values now mean the other class.
    make_model(store, 5, 50, scaling=None, classes=(1, -1)).save(
        plain / "snapshots" / "model-00000005.safetensors"
    )
    assert main([str(plain)]) == 0
    assert float(table(plain)[0]["accuracy"]) == pytest.approx(1 - scaled.accuracy)


def test_several_runs_and_one_picture(run: Path, tmp_path: Path, store: Path) -> None:
    other = make_run(tmp_path / "other", store, {150: 60})
    both = tmp_path / "both.png"
    argv = [run, other, "--picture", both, "--labels", "$C$", "_hidden"]
    assert main([str(argument) for argument in argv]) == 0
    assert both.read_bytes().startswith(PNG) and (other / "evolution.png").exists()
    assert len(table(run)) == 4 and len(table(other)) == 1
    assert "2 given for 1" in refused([run, "--labels", "a", "b"])
    assert "*.png" in refused([run, "--picture", "x.pdf"])
    assert "twice" in refused([run, run])


def test_accuracy_axis_is_near_the_data() -> None:
    assert accuracy_range([90.0, 95.0]) == pytest.approx((89.7, 95.3))
    assert accuracy_range([94.0, 94.0]) == (93.5, 94.5)
    assert accuracy_range([99.9, 100.0])[1] == 100.0


def test_what_is_missing_is_named(tmp_path: Path, run: Path, store: Path) -> None:
    assert "no such run directory" in refused([tmp_path / "nowhere"])
    empty = make_run(tmp_path / "empty", store, {})
    assert "no snapshots and no model" in refused([empty])
    write_config(run, {"train": str(store)})
    assert "--test" in refused([run])
    (run / "config.yaml").unlink()
    assert "config.yaml" in refused([run])
    assert main([str(run), "--test", str(store)]) == 0
    assert not (empty / "evaluation.csv").exists()


def test_test_sets_that_do_not_fit_are_refused(run: Path, tmp_path: Path) -> None:
    wide = make_store(tmp_path / "wide.zarr", rows=300, features=7)
    message = refused([run, "--test", wide])
    assert "7 features" in message and "5" in message
    otherwise = make_store(tmp_path / "minmax.h5", rows=300, scaling="minmax", clip=2.0)
    message = refused([run, "--test", otherwise])
    assert "minmax clipped to 2" in message and "standard" in message
    elsewhere = make_store(tmp_path / "elsewhere.zarr", rows=300, seed=5)
    message = refused([run, "--test", elsewhere])
    assert "standard" in message and "feature 1: offset" in message
    assert not (run / "evaluation.csv").exists()


def test_a_lost_chunk_of_the_test_set_is_noticed(run: Path, tmp_path: Path) -> None:
    torn = make_store(tmp_path / "torn.zarr")
    (torn / "test" / "X" / "c" / "1" / "0").unlink()
    write_config(run, {"test": str(torn)})
    assert "row 64, column 0" in refused([run])


def test_a_damaged_snapshot_is_named(run: Path) -> None:
    path = run / "snapshots" / "model-00000200.safetensors"
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    code, _, err = small_run.run("bigsvm.evaluate", run)
    assert code == 2 and str(path) in err and "damaged" in err
    assert err.count("\n") == 1 and "Traceback" not in err
    assert not (run / "evaluation.csv").exists()


def test_a_snapshot_of_another_run_is_named(run: Path, store: Path) -> None:
    stray = run / "snapshots" / "model-00000400.safetensors"
    make_model(store, 400, 20, kernel={"name": "linear"}).save(stray)
    assert str(stray) in refused([run])
    make_model(store, 400, 20, about={"iteration": 400, "n_working": 1}).save(stray)
    assert str(stray) in refused([run])
    make_model(store, 400, 20, about={"fingerprint": "f"}).save(stray)
    assert "iteration" in refused([run])


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + HANGS
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def lines_of(run: Path) -> int:
    path = run / "evaluation.csv"
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_follow_from_before_the_run_to_its_end(tmp_path: Path, store: Path) -> None:
    run = tmp_path / "later"
    process = small_run.start("bigsvm.evaluate", run, "--follow")
    try:
        assert process.stderr and "waiting" in process.stderr.readline()
        make_run(run, store, {100: 40})
        wait_for(lambda: lines_of(run) == 2)
        write_summary(run, "interrupted")
        add_snapshot(run, store, 200, 90)
        wait_for(lambda: lines_of(run) == 3)
        add_snapshot(run, store, 300, 70)
        make_model(store, 300, 70).save(run / "model.safetensors")
        write_summary(run, "converged")
        out, err = process.communicate(timeout=HANGS)
    finally:
        process.kill()
    assert process.returncode == 0 and "Traceback" not in err
    assert [line.split()[0] for line in out.splitlines()] == [
        "iteration", "100", "200", "300", "written:",
    ]  # fmt: skip
    assert [int(row["iteration"]) for row in table(run)] == [100, 200, 300]
    assert (run / "evolution.png").read_bytes().startswith(PNG)


def test_ctrl_c_ends_following_without_noise(run: Path) -> None:
    process = small_run.start("bigsvm.evaluate", run, "--follow")
    try:
        wait_for((run / "evolution.png").exists)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=HANGS)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in err and len(table(run)) == 4


def test_following_keeps_rows_and_notices_a_fresh_start(
    run: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed = RunEvaluation(run)
    assert len(followed.evaluate_new()) == 4
    reads = counted_reads(monkeypatch)
    assert followed.evaluate_new() == [] and reads == []
    add_snapshot(run, store, 400, 80)
    reads.clear()
    assert [row.iteration for row in followed.evaluate_new()] == [400]
    assert reads == [(0, 64), (64, 128), (128, 192), (192, 256), (256, 300)]
    assert len(followed.rows) == 5
    for path in [*(run / "snapshots").iterdir(), run / "model.safetensors"]:
        path.unlink()
    add_snapshot(run, store, 50, 20)
    followed.evaluate_new()
    assert [row.iteration for row in followed.rows] == [50]


def test_a_run_that_ended_without_a_model_does_not_hang(tmp_path: Path, store: Path) -> None:
    run = make_run(tmp_path / "r", store, {})
    write_summary(run, "time_limit")
    assert "without a model" in refused([run, "--follow"])
