"""`predict --cluster`: the same bytes as without, also when workers die."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigsvm.config import ClusterConfig
from bigsvm.core.errors import ClusterLost
from bigsvm.predict import predict
from bigsvm.prediction import cluster as predict_cluster
from tests.support import small_run
from tests.support.clusters import Processes, another_version, until
from tests.support.small_run import make_model, make_store
from tests.support.trainings import HANGS

pytestmark = pytest.mark.cluster

FORMATS = ("csv", "parquet", "zarr", "npy")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """s.zarr, 40,000 rows in chunks of 1,000; rows.csv, raw ones; a model of many support vectors;
    and what `predict` makes of them without a cluster."""
    folder = tmp_path_factory.mktemp("predict")
    store = make_store(folder / "s.zarr", rows=60_000, chunk_rows=1000)
    make_model(store, 1, 4000).save(folder / "model.safetensors")
    rows = np.random.default_rng(0).normal(size=(3000, 5))
    np.savetxt(folder / "rows.csv", rows, delimiter=",")
    for format in FORMATS:
        predict(folder / "model.safetensors", folder / "s.zarr/train", folder / f"out.{format}")
    code, _, err = run(folder, folder / "rows.csv", folder / "rows-out.csv", "--no-labels")
    assert code == 0, err
    return folder


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Processes]:
    cluster = Processes(tmp_path / "cluster")
    yield cluster
    cluster.close()


@pytest.fixture
def many_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task for every 500 rows, a round for every few of them."""
    monkeypatch.setattr(predict_cluster, "CALL_BYTES", 500 * 5 * 4)


def run(folder: Path, *arguments: object) -> tuple[int, str, str]:
    return small_run.run("bigsvm.predict", folder / "model.safetensors", *arguments)


def content(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


class Predicting(threading.Thread):
    """`predict` of the store on a cluster, in the background; if asked it waits at every step."""

    def __init__(
        self, folder: Path, out: Path, cluster: Processes, step_by_step: bool = False,
        **settings: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        self.steps = 0
        self.may_continue = threading.Semaphore(0 if step_by_step else 2**30)
        self.failure: BaseException | None = None
        self._asked = (folder / "model.safetensors", folder / "s.zarr/train", out)
        self._config = ClusterConfig(kind="address", address=cluster.address, **settings)
        self.start()

    def run(self) -> None:
        try:
            predict(*self._asked, cluster=self._config, progress=self._progress)
        except BaseException as failure:
            self.failure = failure

    def _progress(self, what: str, done: int, total: int | None) -> None:
        self.steps += 1
        self.may_continue.acquire()

    def ended(self) -> BaseException | None:
        self.join(timeout=HANGS)
        assert not self.is_alive()
        return self.failure


def test_the_same_bytes_on_a_local_cluster(folder: Path, tmp_path: Path) -> None:
    options = ("--cluster", "local", "--set", "cluster.workers=2")
    code, out, err = run(folder, folder / "s.zarr/train", tmp_path / "out.csv", *options)
    assert code == 0 and "accuracy" in out and "Traceback" not in err
    assert content(tmp_path / "out.csv") == content(folder / "out.csv")


def test_the_same_bytes_in_every_format(folder: Path, tmp_path: Path, cluster: Processes) -> None:
    for name in ("one", "two"):
        cluster.start_worker(name)
    for format in FORMATS:
        asked = (folder / "model.safetensors", folder / "s.zarr/train", tmp_path / f"out.{format}")
        where = ClusterConfig(kind="scheduler_file", scheduler_file=str(cluster.file), workers=2)
        predict(*asked, cluster=where)
        assert content(tmp_path / f"out.{format}") == content(folder / f"out.{format}")
    done = run(
        folder, folder / "rows.csv", tmp_path / "rows-out.csv", "--no-labels", "--cluster",
        cluster.address,
    )  # fmt: skip
    assert done[0] == 0, done
    assert content(tmp_path / "rows-out.csv") == content(folder / "rows-out.csv")
    tasks = cluster.client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))
    assert tasks == 0, "nothing is left on the scheduler"


def test_both_workers_take_part_and_not_too_much_is_under_way(
    folder: Path, tmp_path: Path, cluster: Processes, many_rounds: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    asked: list[list[tuple[str, Any]]] = []
    collected = 0
    send, collect = predict_cluster.Cluster.send, predict_cluster.Cluster.collect

    def sent(self: Any, function: Callable, calls: list) -> Any:
        asked.append([(address, len(arguments[1])) for address, arguments in calls])
        assert len(asked) - collected <= predict_cluster.ROUNDS + 1
        return send(self, function, calls)

    def answered(self: Any, sent: Any) -> Any:
        nonlocal collected
        collected += 1
        return collect(self, sent)

    monkeypatch.setattr(predict_cluster.Cluster, "send", sent)
    monkeypatch.setattr(predict_cluster.Cluster, "collect", answered)
    for name in ("one", "two"):
        cluster.start_worker(name)
    assert Predicting(folder, tmp_path / "out.csv", cluster, workers=2).ended() is None
    assert content(tmp_path / "out.csv") == content(folder / "out.csv")
    addresses = set(cluster.addresses().values())
    assert len(asked) >= 20 and all({a for a, _ in calls} == addresses for calls in asked)
    assert max(rows for calls in asked for _, rows in calls) <= 500


def test_workers_killed_in_the_middle(
    folder: Path, tmp_path: Path, cluster: Processes, many_rounds: None,
    capfd: pytest.CaptureFixture,
) -> None:  # fmt: skip
    for name in ("one", "two"):
        cluster.start_worker(name)
    predicting = Predicting(folder, tmp_path / "out.csv", cluster, step_by_step=True, workers=2)
    under_way = predict_cluster.ROUNDS  # perhaps answered already; the round after them is not
    for steps, name in ((1, "one"), (2 + under_way, "two")):
        until(lambda steps=steps: predicting.steps == steps)  # by the second the other took over
        cluster.stop(name)
        predicting.may_continue.release(1 + under_way)
        cluster.freeze(name)
        cluster.kill(cluster.workers[name])
        until(lambda name=name: name not in cluster.addresses())
    predicting.may_continue.release(1000)
    until(lambda: "no workers left; waiting" in capfd.readouterr().err)
    cluster.start_worker("three")  # which has no model yet
    assert predicting.ended() is None
    assert content(tmp_path / "out.csv") == content(folder / "out.csv")
    assert "continuing with 1 worker" in capfd.readouterr().err


def test_a_lost_cluster_leaves_nothing(
    folder: Path, tmp_path: Path, cluster: Processes, many_rounds: None
) -> None:
    cluster.start_worker("one")
    place = tmp_path / "place"
    place.mkdir()
    predicting = Predicting(folder, place / "out.csv", cluster, step_by_step=True)
    until(lambda: predicting.steps)
    cluster.kill(cluster.scheduler)
    predicting.may_continue.release(1000)
    failure = predicting.ended()
    assert isinstance(failure, ClusterLost) and "its scheduler is gone" in str(failure)
    assert not any(place.iterdir())


def test_no_workers_and_unfit_ones_are_told_in_one_line(
    folder: Path, tmp_path: Path, cluster: Processes
) -> None:
    asked = (folder / "s.zarr", tmp_path / "out.csv", "--cluster", cluster.file)
    code, out, err = run(folder, *asked, "--set", "cluster.wait_limit=1s")
    said = err.splitlines()
    assert code == 1 and out == "" and said[0].startswith("waiting for 1 worker, at most 1 s")
    assert "0 of 1 workers came in 1 s" in said[1] and len(said) == 2
    code, out, err = run(folder, *asked, "--quiet", "--set", "cluster.wait_limit=1s")
    assert code == 1 and out == "" and err.count("\n") == 1, "only the error"
    another_version(tmp_path / "other")
    cluster.start_worker("unfit", path=tmp_path / "other")
    until(lambda: cluster.addresses())
    code, out, err = run(folder, *asked)
    assert code == 2 and out == "" and err.count("\n") == 1
    assert err.startswith("error: the worker at tcp://127.0.0.1:") and "has bigsvm 9." in err
    assert "and this process has" in err and not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--set", "cluster.workers=2"), "--set cluster.workers=2: needs --cluster"),
        (("--cluster", "local", "--set", "model.C=2"), "write it as cluster.key=value"),
        (("--cluster", "local", "--set", "cluster.worker=2"), "did you mean 'workers'?"),
        (("--cluster", "local", "--set", "cluster.workers=0"), "cluster.workers = 0"),
        (("--cluster", "tcp://127.0.0.1:1"), "no Dask scheduler answers there"),
        (("--cluster", "no.json"), "--cluster no.json: no such file"),
        (("--cluster", "locale"), "use `local`"),
    ],
)
def test_mistakes(folder: Path, tmp_path: Path, options: tuple, said: str) -> None:
    code, out, err = run(folder, folder / "s.zarr", tmp_path / "out.csv", *options)
    assert code == 2 and out == "" and "Traceback" not in err
    assert err.splitlines()[-1].startswith("error: ") and said in err.splitlines()[-1]
    assert not list(tmp_path.iterdir())
