"""What the README promises of `python -m bigsvm.train`, tried with real processes."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from trainings import (
    HANGS,
    TOLERANCE,
    Train,
    assert_same_run,
    caught,
    command,
    environment,
    everything,
    final,
    killed,
    newest_checkpoint,
    one_line,
    reported,
    snapshot,
    snapshots,
    summary,
    wait_until,
    went_on_at,
)

from bigsvm import load_model
from bigsvm.errors import UserError
from bigsvm.prepare import prepare
from bigsvm.prepare_options import PrepareOptions
from bigsvm.store import open_dataset


@pytest.fixture(scope="session")
def halfway_once(train: Train, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("halfway") / "halfway"
    train(run_dir, "solver.max_iterations=1500")
    return run_dir


@pytest.fixture
def halfway(halfway_once: Path, tmp_path: Path) -> Path:
    """A run that stopped at iteration 1,500, with checkpoints there and at 1,350."""
    return Path(shutil.copytree(halfway_once, tmp_path / "halfway"))


# Promise 1: the same bits


@pytest.mark.parametrize("form", ["chunks of 8192", "chunks of 500"])
def test_same_bits_whatever_the_form_of_the_store(
    train: Train, straight: Path, stores: dict[str, Path], tmp_path: Path, form: str
) -> None:
    train(tmp_path / "run", f"data.train={stores[form]}")
    assert_same_run(tmp_path / "run", straight)


def test_same_bits_from_arrays_of_the_users_own(
    train: Train, straight: Path, stores: dict[str, Path], tmp_path: Path
) -> None:
    with open_dataset(stores["chunks of 1000"]) as data:
        rows, labels = data.read(0, data.n), data.labels()
    with h5py.File(tmp_path / "mine.h5", "w") as file:
        file["features"] = rows.astype(np.float64)
        file["kind"] = np.where(labels > 0, 7, 3)
    mine = f"{{path: {tmp_path / 'mine.h5'}, x: features, y: kind}}"
    train(tmp_path / "run", f"data.train={mine}", "solver.max_iterations=600")
    model = load_model(tmp_path / "run" / "model.safetensors")
    same = load_model(straight / "snapshots" / "model-00000600.safetensors")
    assert model.dual_coef.tobytes() == same.dual_coef.tobytes()
    assert model.support_index.tobytes() == same.support_index.tobytes()
    assert model.support_vectors.tobytes() == same.support_vectors.tobytes()
    assert model.classes == (3, 7)
    assert str(tmp_path) not in json.dumps(dict(model.about)), "a model says not where it was made"


def test_same_bits_with_memory_for_some_columns(
    train: Train, straight: Path, tmp_path: Path
) -> None:
    refusal = one_line(train(tmp_path / "run", "solver.memory_limit=1MiB", code=2))
    assert "solver.memory_limit = 1 MiB is too small" in refusal
    enough = refusal.split("at least ")[1].split()[0]
    train(tmp_path / "run", f"solver.memory_limit={enough}", "solver.max_iterations=1200")
    assert final(tmp_path / "run") == snapshot(straight, 1200)


INSTRUMENTED = """
import sys
import numba
from bigsvm import cli, memory, train
from bigsvm.solvers import column_cache, exact

exact._WORTH_THREADS = 0  # use them for few patterns too
resident, columns = int(sys.argv.pop(1)), int(sys.argv.pop(1))
if columns:
    memory.plan_memory = lambda limit, data, *rest, **more: memory.MemoryPlan(
        resident, columns * 4 * data.n, 24
    )

steps, threads = exact._steps, set()
def watched(*arguments):
    threads.add(numba.get_num_threads())
    return steps(*arguments)
exact._steps = watched

make, sizes = column_cache.ColumnCache.__init__, set()
def made(self, *arguments):
    make(self, *arguments)
    sizes.add(len(self.columns))
column_cache.ColumnCache.__init__ = made
code = cli.run(train.main)
print("capacity", *sizes, "threads", *threads)
sys.exit(code)
"""


def train_instrumented(
    train_command: list[str], resident: int = 0, columns: int = 0, threads: int = 1
) -> str:
    """Train with so much memory, and so many cores; say what was made of them."""
    done = subprocess.run(
        [sys.executable, "-c", INSTRUMENTED, str(resident), str(columns), *train_command[3:]],
        capture_output=True,
        text=True,
        env=environment(threads),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_same_bits_with_memory_for_hardly_anything(
    config: Path, straight: Path, tmp_path: Path
) -> None:
    """One chunk of three stays in memory, and two columns of 3000."""
    asked = command(config, tmp_path / "run", "solver.max_iterations=300")
    assert train_instrumented(asked, 40_000, 2).startswith("capacity 2 ")
    assert final(tmp_path / "run") == snapshot(straight, 300)


def test_same_bits_with_two_threads(config: Path, straight: Path, tmp_path: Path) -> None:
    sets = ("solver.threads=2", "solver.max_iterations=300")
    asked = command(config, tmp_path / "run", *sets)
    assert train_instrumented(asked, threads=2).endswith("threads 2")
    assert final(tmp_path / "run") == snapshot(straight, 300)


def test_threads_bound_every_part(config: Path, tmp_path: Path) -> None:
    sets = ("solver.threads=1", "solver.max_iterations=5")
    asked = command(config, tmp_path / "run", *sets)
    assert train_instrumented(asked, threads=2).endswith("threads 1")


# Promise 2: the same command goes on


def test_killed_at_any_moment(start: Any, train: Train, straight: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    killed(start, run_dir, times=5)
    last = newest_checkpoint(run_dir)
    assert last > 0
    (run_dir / "snapshots" / ".model-00000300.safetensors.99999999.tmp").write_bytes(b"half")
    assert went_on_at(train(run_dir).stderr) == last
    assert_same_run(run_dir, straight)


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 16
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [cut_short, flip_a_bit])
def test_a_damaged_checkpoint_is_noticed(
    train: Train, straight: Path, halfway: Path, damage: Callable[[Path], None]
) -> None:
    newest = halfway / "checkpoints" / "checkpoint-0000001500.safetensors"
    damage(newest)
    said = train(halfway).stderr
    assert any(
        line.startswith("warning: ") and str(newest) in line for line in said.splitlines()
    ), said
    assert went_on_at(said) == 1350
    assert_same_run(halfway, straight)


def test_no_checkpoint_left_means_from_the_start(
    train: Train, straight: Path, halfway: Path
) -> None:
    for path in (halfway / "checkpoints").iterdir():
        cut_short(path)
    arguments = ("run.keep_checkpoints=1", "run.checkpoint_every=90", "solver.max_iterations=900")
    said = train(halfway, *arguments).stderr
    assert said.count("warning: ") == 2
    assert "going on" not in said
    assert final(halfway) == snapshot(straight, 900)
    assert went_on_at(train(halfway).stderr) == 900, "what is saved then is to be found again"
    assert_same_run(halfway, straight)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_interrupted_and_gone_on(
    start: Any, train: Train, straight: Path, tmp_path: Path, number: int
) -> None:
    run_dir = tmp_path / "run"
    arguments = ("run.checkpoint_every=1000000",)
    begun = (run_dir / "snapshots" / "model-00000300.safetensors").exists
    process = caught(lambda: start(run_dir, *arguments), run_dir, begun)
    process.send_signal(number)
    process.send_signal(signal.SIGCONT)
    _, said = process.communicate(timeout=HANGS)
    assert process.returncode == 128 + number
    assert "Traceback" not in said
    stopped = summary(run_dir)
    assert stopped["status"] == "interrupted"
    assert 0 < stopped["iterations"] == newest_checkpoint(run_dir) < summary(straight)["iterations"]
    assert not (run_dir / "model.safetensors").exists()
    assert went_on_at(train(run_dir).stderr) == stopped["iterations"]
    assert_same_run(run_dir, straight)


def test_interrupted_twice_leaves_at_once(start: Any, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    for _ in range(20):
        process = start(run_dir, "solver.max_iterations=300")
        wait_until((run_dir / "checkpoints").exists, process)
        process.send_signal(signal.SIGINT)  # still reading its data: it will not look up so soon
        assert process.stderr is not None
        while "once more" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=HANGS) in (-signal.SIGINT, 128 + signal.SIGINT)
        if not (run_dir / "summary.json").exists():
            return
        shutil.rmtree(run_dir)  # we were slow, and it had left in order before the second one
    raise AssertionError("the second one was never obeyed")


def test_interrupted_when_nobody_reads_the_messages(start: Any, tmp_path: Path) -> None:
    """`bigsvm.train ... 2>&1 | tee log`: Ctrl-C ends tee first."""
    run_dir = tmp_path / "run"
    process = start(run_dir, "run.checkpoint_every=1000000", "solver.tolerance=1e-15")
    wait_until((run_dir / "snapshots" / "model-00000300.safetensors").exists, process)
    process.stdout.close()
    process.stderr.close()
    process.send_signal(signal.SIGINT)
    process.wait(timeout=HANGS)
    assert summary(run_dir)["status"] == "interrupted"
    assert newest_checkpoint(run_dir) > 0


def test_more_iterations_go_on_to_the_same_bits(
    train: Train, straight: Path, halfway: Path
) -> None:
    assert summary(halfway)["status"] == "max_iterations"
    assert final(halfway) == snapshot(straight, 1500)
    said = train(halfway, "solver.max_iterations=2100").stderr
    assert went_on_at(said) == 1500
    assert summary(halfway)["iterations"] == 2100
    assert final(halfway) == snapshot(straight, 2100)
    train(halfway)
    assert_same_run(halfway, straight)


def test_a_finished_run_stays_as_it_is(train: Train, straight: Path, tmp_path: Path) -> None:
    run_dir = Path(shutil.copytree(straight, tmp_path / "run"))
    train(run_dir)
    assert_same_run(run_dir, straight)
    assert reported(run_dir) == reported(straight)


def test_time_limit(train: Train, straight: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    slow = ("run.snapshot_every=1", "run.checkpoint_every=1")
    begin = time.monotonic()
    train(run_dir, *slow, "solver.time_limit=2")
    took = time.monotonic() - begin
    first = summary(run_dir)
    assert first["status"] == "time_limit"
    assert first["true_gap"] is not None
    assert load_model(run_dir / "model.safetensors").about["iteration"] == first["iterations"]
    begin = time.monotonic()
    said = train(run_dir, *slow, "solver.time_limit=0.001").stderr
    with_no_time = time.monotonic() - begin
    assert took < 2 + 3 * with_no_time, "generous: other work may share the machine"
    assert went_on_at(said) == first["iterations"]
    assert summary(run_dir)["iterations"] > first["iterations"]
    train(run_dir)
    assert final(run_dir) == final(straight)


# Promise 3: nothing is mixed up


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("model.C=11", "C was 10.0 and is now 11.0"),
        ("model.kernel.sigma=2", "kernel.gamma was 0.5 and is now 0.125"),
        ("model.algorithm=fw", "algorithm was 'mfw' and is now 'fw'"),
        ("other data", "data was"),
    ],
)
def test_another_model_or_other_data_is_refused(
    train: Train, halfway: Path, stores: dict[str, Path], change: str, named: str
) -> None:
    before = everything(halfway)
    if change in stores:
        change = f"data.train={stores[change]}"
    refusal = one_line(train(halfway, change, code=2))
    assert named in refusal
    assert str(halfway) in refusal
    assert everything(halfway) == before


def test_snapshots_of_two_models_never_lie_together(
    start: Any, config: Path, tmp_path: Path
) -> None:
    """Even where the first run was killed before its first checkpoint."""
    run_dir = tmp_path / "run"
    settings = ("run.checkpoint_every=1000000", "run.snapshot_every=50")
    begun = (run_dir / "snapshots" / "model-00000300.safetensors").exists
    process = caught(lambda: start(run_dir, *settings), run_dir, begun)
    process.kill()
    process.communicate()
    arguments = ("model.C=2", "solver.max_iterations=100", "run.snapshot_every=50")
    done = subprocess.run(
        command(config, run_dir, *arguments), capture_output=True, env=environment()
    )
    assert done.returncode in (0, 2), done.stderr
    strengths = {load_model(path).about["C"] for path in (run_dir / "snapshots").iterdir()}
    assert strengths == ({2.0} if done.returncode == 0 else {10.0})


def test_two_trainers_never_share_a_run_directory(
    start: Any, train: Train, straight: Path, tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"
    process = caught(lambda: start(run_dir), run_dir, lambda: newest_checkpoint(run_dir) > 0)
    before = everything(run_dir)
    for arguments in ((), ("--fresh",)):
        assert "another trainer is at work" in one_line(train(run_dir, *arguments, code=2))
    assert everything(run_dir) == before
    process.send_signal(signal.SIGCONT)
    _, said = process.communicate(timeout=HANGS)
    assert process.returncode == 0, said
    assert_same_run(run_dir, straight)


def test_fresh_begins_anew(train: Train, halfway: Path) -> None:
    (halfway / "notes.txt").write_text("mine")
    train(halfway, "--fresh", "model.C=3", "solver.max_iterations=300")
    assert summary(halfway)["iterations"] == 300
    assert list(snapshots(halfway)) == ["model-00000300.safetensors"]
    assert max(reported(halfway)) == 300
    assert load_model(halfway / "model.safetensors").about["C"] == 3.0
    assert (halfway / "notes.txt").read_text() == "mine"


def test_fresh_forgets_nothing_where_it_cannot_begin(train: Train, halfway: Path) -> None:
    before = everything(halfway)
    for wrong in ("data.train=/no/such.zarr", "solver.memory_limit=1MiB"):
        one_line(train(halfway, "--fresh", wrong, code=2))
        assert everything(halfway) == before, wrong


def test_a_mistake_leaves_no_run_directory(train: Train, tmp_path: Path) -> None:
    assert "/no/such.zarr" in one_line(train(tmp_path / "r", "data.train=/no/such.zarr", code=2))
    assert not (tmp_path / "r").exists()


# Promise 5: models are data, and need nothing else

USE = """
import sys, json
import numpy as np
import bigsvm
model = bigsvm.load_model("m.safetensors")
rows = np.load("rows.npy")
np.save("decision.npy", model.decision_function(rows))
json.dump([model.predict(rows).tolist(), sorted(sys.modules)], open("out.json", "w"))
"""


def test_a_model_needs_neither_data_nor_dask(straight: Path, tmp_path: Path) -> None:
    shutil.copy(straight / "model.safetensors", tmp_path / "m.safetensors")
    rows = np.random.default_rng(0).normal(size=(50, 8))
    np.save(tmp_path / "rows.npy", rows)
    subprocess.run([sys.executable, "-c", USE], cwd=tmp_path, check=True, env=environment())
    predicted, modules = json.loads((tmp_path / "out.json").read_text())
    unwanted = {"dask", "distributed", "zarr", "h5py", "sklearn", "pyarrow", "pydantic"}
    assert not unwanted & set(modules)
    model = load_model(tmp_path / "m.safetensors")
    assert model.scaling is not None
    x = model.scaling.apply(rows).astype(np.float64)
    distance = ((x[:, None, :] - model.support_vectors[None].astype(np.float64)) ** 2).sum(axis=2)
    expected = np.exp(-distance / 2) @ model.dual_coef
    np.testing.assert_allclose(np.load(tmp_path / "decision.npy"), expected, rtol=0, atol=1e-9)
    assert predicted == np.where(expected >= 0, 1, -1).tolist()


# Promise 6: the end is checked


def test_the_summary_tells_the_true_gap(straight: Path, stores: dict[str, Path]) -> None:
    told = summary(straight)
    assert told["status"] == "converged"
    assert told["gap"] <= TOLERANCE
    assert told["true_gap"] <= TOLERANCE
    assert 0 <= told["drift"] < 1e-12
    # The same from nothing but the model and the data, in plain numpy.
    model = load_model(straight / "model.safetensors")
    with open_dataset(stores["chunks of 1000"]) as data:
        x, y = data.read(0, data.n).astype(np.float64), data.labels().astype(np.float64)
    squares = (x**2).sum(axis=1)
    kernel = np.exp(-(squares[:, None] + squares - 2 * x @ x.T) / 2)
    alpha = np.zeros(len(y))
    alpha[model.support_index] = model.dual_coef * y[model.support_index]
    assert (alpha[model.support_index] > 0).all()
    assert alpha.sum() == pytest.approx(1, abs=1e-12)
    gradient = y * (kernel @ (alpha * y)) + alpha / 10
    assert told["objective"] == pytest.approx(alpha @ gradient / 2, rel=1e-5)
    support = gradient[alpha > 0]
    assert support.max() - support.min() <= told["true_gap"] + 1e-8
    assert told["n_support"] == len(support)
    assert model.about["n_working"] == told["n_working"] >= len(support)


def test_a_real_data_set_with_a_test_set(train: Train, data_dir: Path, tmp_path: Path) -> None:
    store = tmp_path / "sonar.zarr"
    prepare(data_dir / "sonar.all-data", store, PrepareOptions(scaling="minmax", test_rows=60))
    sets = (f"data.train={store}", f"data.test={store}/test", "solver.tolerance=1e-8")
    train(tmp_path / "run", *sets)
    told = summary(tmp_path / "run")
    assert told["true_gap"] <= 1e-8
    assert told["accuracy"] > 0.75
    model = load_model(tmp_path / "run" / "model.safetensors")
    with open_dataset(store, "test") as test:
        right = model.decision_function(test.read(0, 60), scaled=True) * test.labels() >= 0
    assert told["accuracy"] == pytest.approx(right.mean())
    assert str(data_dir) not in json.dumps(dict(model.about)), "a model says not where it was made"


# When the machine is at fault


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of half a megabyte."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=500k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("only root may mount a small file system")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def remount(folder: Path, option: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{option}", str(folder)], check=True)


def test_a_full_disk(train: Train, straight: Path, small_disk: Path) -> None:
    run_dir = small_disk / "run"
    for _ in range(2):  # the second time it is full from the beginning
        failed = train(run_dir, code=1)
        message = failed.stderr.strip().splitlines()[-1]
        assert "No space left on device" in message
        assert str(run_dir) in message, "it names what could not be written"
        assert not (run_dir / "summary.json").exists()
    remount(small_disk, "size=20m")
    assert went_on_at(train(run_dir).stderr) > 0
    assert_same_run(run_dir, straight)


def test_a_read_only_run_directory(train: Train, small_disk: Path) -> None:
    (small_disk / "run").mkdir()
    remount(small_disk, "ro")
    for run_dir in (small_disk / "run", small_disk / "other"):
        assert str(run_dir) in one_line(train(run_dir, code=2))


def test_a_kernel_too_narrow_is_told(train: Train, tmp_path: Path) -> None:
    said = train(tmp_path / "run", "model.kernel={name: rbf, sigma: 0.001}").stderr
    assert "the kernel is too narrow" in said


def test_rows_that_are_not_finite_are_refused(straight: Path) -> None:
    model = load_model(straight / "model.safetensors")
    rows = np.zeros((3, 8))
    rows[1, 2] = np.nan
    with pytest.raises(UserError, match="row 1, column 2"):
        model.predict(rows)
