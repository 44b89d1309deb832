"""Workers and schedulers that die, and those that are not as they should be: real processes."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.support.clusters import Processes, until
from tests.support.trainings import (
    HANGS,
    Train,
    command,
    environment,
    final,
    newest_checkpoint,
    snapshots,
    summary,
)

pytestmark = pytest.mark.cluster

OFTEN = "run.checkpoint_every=5"
EXACT = ("solver.schedule=exact", "solver.max_iterations=120", "run.snapshot_every=50", OFTEN)
SHORT = "solver.max_iterations=1800"  # some thirty passes, enough to be disturbed in
BLOCK = ("solver.schedule=block", "solver.hot_set=16", SHORT, "run.snapshot_every=300", OFTEN)
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[Callable[..., Processes]]:
    made = []

    def make(*workers: str) -> Processes:
        cluster = Processes(tmp_path / f"cluster{len(made)}")
        made.append(cluster)
        for name in workers:
            cluster.start_worker(name)
        return cluster

    yield make
    for cluster in made:
        cluster.close()


@pytest.fixture(scope="module")
def alone(train: Train, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same trainings without a cluster, and without trouble."""
    folder = tmp_path_factory.mktemp("alone")
    for name, settings in (("exact", EXACT), ("block", BLOCK)):
        train(folder / name, *settings)
    return {name: folder / name for name in ("exact", "block")}


def on(cluster: Processes, *more: str) -> tuple[str, ...]:
    return ("cluster.kind=scheduler_file", f"cluster.scheduler_file={cluster.file}", *more)


def assert_same_models(run_dir: Path, other: Path) -> None:
    assert final(run_dir) == final(other)
    assert snapshots(run_dir) == snapshots(other)


def await_line(process: "subprocess.Popen[str]", text: str) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if text in line:
            return line
    raise AssertionError(f"it ended without saying {text!r}")


def await_passes(run_dir: Path) -> None:
    until(lambda: newest_checkpoint(run_dir) > 0)


def alive_in_group(group: int) -> list[int]:
    alive = []
    for process in psutil.process_iter():
        with suppress(OSError, psutil.Error):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                alive.append(process.pid)
    return alive


def test_workers_die_in_the_middle_of_a_pass(
    make_cluster: Callable[..., Processes], start: Start, alone: dict[str, Path], tmp_path: Path
) -> None:
    cluster = make_cluster("one", "two")
    process = start(tmp_path / "run", *BLOCK, *on(cluster, "cluster.workers=2"))
    await_passes(tmp_path / "run")
    cluster.freeze("one")
    cluster.kill(cluster.workers["one"])  # the other one takes over
    until(lambda: "one" not in cluster.addresses())
    cluster.freeze("two")
    cluster.kill(cluster.workers["two"])  # now there is none
    await_line(process, "no workers left; waiting for some, at most 10 min (cluster.wait_limit)")
    cluster.start_worker("three")
    await_line(process, "continuing with 1 worker")
    _, said = process.communicate(timeout=HANGS)
    assert process.returncode == 0, said
    assert "Traceback" not in said
    assert_same_models(tmp_path / "run", alone["block"])


def test_no_workers_for_too_long(
    make_cluster: Callable[..., Processes],
    start: Start,
    train: Train,
    alone: dict[str, Path],
    tmp_path: Path,
) -> None:
    cluster = make_cluster("one")
    process = start(tmp_path / "run", *BLOCK, *on(cluster, "cluster.wait_limit=1s"))
    await_passes(tmp_path / "run")
    cluster.freeze("one")
    cluster.kill(cluster.workers["one"])
    out, said = process.communicate(timeout=HANGS)
    assert process.returncode == 1
    assert said.splitlines()[-1] == (
        f"error: cluster {cluster.address}: no workers for 1 s (cluster.wait_limit)"
    )
    assert "Traceback" not in said
    assert "the same command resumes" in out
    assert summary(tmp_path / "run")["status"] == "interrupted"
    assert newest_checkpoint(tmp_path / "run") == summary(tmp_path / "run")["iterations"] > 0
    train(tmp_path / "run", *BLOCK)
    assert_same_models(tmp_path / "run", alone["block"])


@pytest.mark.parametrize("schedule", ["exact", "block"])
def test_the_scheduler_dies(
    schedule: str,
    make_cluster: Callable[..., Processes],
    start: Start,
    train: Train,
    alone: dict[str, Path],
    tmp_path: Path,
) -> None:
    settings = EXACT if schedule == "exact" else BLOCK
    cluster = make_cluster("one")
    process = start(tmp_path / "run", *settings, *on(cluster))
    await_passes(tmp_path / "run")
    cluster.freeze("one")
    cluster.kill(cluster.scheduler)
    _, said = process.communicate(timeout=HANGS)
    assert process.returncode == 1, said
    assert said.splitlines()[-1] == f"error: cluster {cluster.address}: its scheduler is gone"
    assert "Traceback" not in said
    assert newest_checkpoint(tmp_path / "run") == summary(tmp_path / "run")["iterations"] > 0
    train(tmp_path / "run", *settings, "cluster.kind=local", "cluster.workers=2")
    assert_same_models(tmp_path / "run", alone[schedule])


def test_interrupted_on_a_local_cluster(
    train: Train, config: Path, alone: dict[str, Path], tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"
    settings = (*BLOCK, "cluster.kind=local", "cluster.workers=2")
    process = subprocess.Popen(
        command(config, run_dir, *settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    await_passes(run_dir)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers too
    _, said = process.communicate(timeout=HANGS)
    assert process.returncode == 128 + signal.SIGINT
    assert "Traceback" not in said
    assert "KeyboardInterrupt" not in said
    until(lambda: not alive_in_group(process.pid))  # no worker outlives it
    assert 0 < newest_checkpoint(run_dir) == summary(run_dir)["iterations"]
    train(run_dir, *settings)
    assert_same_models(run_dir, alone["block"])


@pytest.mark.parametrize("deaths, code", [(1, 0), (10**6, 1)])
def test_workers_that_die_as_they_start(
    deaths: int, code: int, start: Start, alone: dict[str, Path], tmp_path: Path
) -> None:
    settings = (*BLOCK, "cluster.kind=local", "cluster.workers=1")
    process = start(tmp_path / "run", *settings)
    while process.poll() is None and deaths:
        with suppress(psutil.Error):
            for worker in workers_of(process.pid):
                worker.kill()
                worker.wait()
                deaths -= 1
        time.sleep(0.01)
    _, said = process.communicate(timeout=HANGS)
    assert process.returncode == code, said
    assert "Traceback" not in said
    if code:
        assert "cluster of this machine: its workers do not start" in said.splitlines()[-1]
    else:
        assert_same_models(tmp_path / "run", alone["block"])


def workers_of(trainer: int) -> list[psutil.Process]:
    """Those of a local cluster."""
    children = psutil.Process(trainer).children()
    return [child for child in children if any("spawn_main" in word for word in child.cmdline())]


def test_a_local_worker_that_dask_gives_up_is_replaced(
    start: Start, alone: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that takes long to start again, as on a busy machine; here that is very short."""
    monkeypatch.setenv("DASK_DISTRIBUTED__DEPLOY__LOST_WORKER_TIMEOUT", "50ms")
    settings = (*BLOCK, "cluster.kind=local", "cluster.workers=1", "cluster.wait_limit=100s")
    process = start(tmp_path / "run", *settings)
    await_passes(tmp_path / "run")
    for worker in workers_of(process.pid):
        worker.kill()
    _, said = process.communicate(timeout=HANGS)
    assert process.returncode == 0, said
    assert "continuing with 1 worker" in said
    assert_same_models(tmp_path / "run", alone["block"])


def test_interrupted_while_waiting_for_workers(
    make_cluster: Callable[..., Processes], start: Start, tmp_path: Path
) -> None:
    cluster = make_cluster()
    process = start(tmp_path / "run", *BLOCK, *on(cluster))
    await_line(process, "waiting for 1 worker")
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=HANGS)
    assert process.returncode == 128 + signal.SIGTERM, said
