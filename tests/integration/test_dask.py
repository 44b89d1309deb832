"""The Dask backend serves the same bits as the local one, on a real cluster of processes."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Adaptive, LocalCluster

from bigsvm.backends import Backend
from bigsvm.backends.dask import DaskBackend
from bigsvm.backends.local import LocalBackend
from bigsvm.cluster.start import connect
from bigsvm.cluster.workers import Cluster
from bigsvm.config import ClusterConfig, PrepareOptions
from bigsvm.core.stop_rule import StopRule
from bigsvm.kernels import Kernel
from bigsvm.preparation.pipeline import prepare
from bigsvm.solvers.column_cache import space_for_columns
from bigsvm.solvers.problem import Problem
from bigsvm.stores.store import Dataset, open_dataset
from tests.support.clusters import until
from tests.support.problems import block_schedule, exact_schedule
from tests.support.trainings import HANGS

pytestmark = [pytest.mark.cluster, pytest.mark.core]

ROWS = 66_000  # more than the largest chunk
KERNEL = Kernel("rbf", 0.5)
MEMORY = 2**30
FORMS = [f"{rows}.{format}" for rows in (1000, 8192, 65536) for format in ("zarr", "h5")]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same data in chunks of several sizes, as Zarr and as HDF5."""
    folder = tmp_path_factory.mktemp("stores")
    for name in FORMS:
        options = PrepareOptions(rows=ROWS, features=4, chunk_rows=int(name.split(".")[0]))
        prepare("synthetic", folder / name, options)
    return folder


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    config = ClusterConfig(kind="local", workers=3)
    with connect(config, print, lambda: False) as cluster:
        assert cluster is not None
        yield cluster


class SomeWorkers:
    """A cluster of which only the first few workers are used."""

    def __init__(self, cluster: Cluster, count: int) -> None:
        self._cluster, self._count = cluster, count
        self.check_workers, self.compute = cluster.check_workers, cluster.compute

    def workers(self) -> dict[str, int]:
        return dict(list(self._cluster.workers().items())[: self._count])


def block(problem: Problem) -> Any:
    return block_schedule(problem, KERNEL, 2**24, 64)


def exact(problem: Problem) -> Any:
    return exact_schedule(problem, space_for_columns(100 * 4 * ROWS, ROWS))


def trained(backend: Backend, dataset: Dataset, schedule: Callable, iterations: int) -> bytes:
    """Everything that a training has found out after some iterations."""
    problem = Problem(backend, dataset.labels(), 10.0, "mfw", StopRule(absolute=1e-6))
    before = backend.kernel_values.total
    state = problem.start(0)
    for now in schedule(problem).run(state):
        if now.iteration >= iterations:
            break
    assert state.iteration >= iterations
    rows = backend.gather(np.flatnonzero(state.alpha))
    parts = (state.alpha, state.gradient, state.role, rows, problem.gradient(state.alpha))
    computed = np.int64(backend.kernel_values.total - before)
    return b"".join(part.tobytes() for part in (*parts, computed))


@pytest.fixture(scope="module")
def expected(stores: Path) -> dict[str, bytes]:
    with open_dataset(stores / FORMS[0]) as dataset:
        return {
            schedule.__name__: trained(
                LocalBackend(dataset, KERNEL, MEMORY, threads=1), dataset, schedule, count
            )
            for schedule, count in ((block, 250), (exact, 15))
        }


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("workers", ["1 thread", "2 threads", "1 worker", "2 workers", "3 workers"])
def test_same_bits(
    workers: str, form: str, stores: Path, cluster: Cluster, expected: dict[str, bytes]
) -> None:
    count, kind = int(workers[0]), workers[2:]
    with open_dataset(stores / form) as dataset:
        backend: Backend
        if kind.startswith("thread"):
            backend = LocalBackend(dataset, KERNEL, MEMORY, threads=count)
        else:
            some: Any = SomeWorkers(cluster, count)
            backend = DaskBackend(dataset, str(stores / form), KERNEL, some, MEMORY)
        assert trained(backend, dataset, block, 250) == expected["block"]
        if form == FORMS[0]:
            assert trained(backend, dataset, exact, 15) == expected["exact"]


def test_a_killed_worker_is_replaced_and_nothing_is_left_behind(
    cluster: Cluster, stores: Path, expected: dict[str, bytes]
) -> None:
    client = cluster._client
    pids = client.run(os.getpid)
    with open_dataset(stores / FORMS[0]) as dataset:
        backend = DaskBackend(dataset, str(stores / FORMS[0]), KERNEL, cluster, MEMORY)
        os.kill(next(iter(pids.values())), signal.SIGKILL)
        assert trained(backend, dataset, block, 250) == expected["block"]
    client.wait_for_workers(3, timeout=HANGS)  # its nanny has started another one
    assert len(set(client.run(os.getpid).values()) - set(pids.values())) == 1
    tasks = client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))
    assert tasks == 0, "no graph that grows over the passes"


def test_an_adaptive_cluster_grows_and_shrinks_in_the_middle_of_a_run(
    stores: Path, expected: dict[str, bytes]
) -> None:
    sizes = {0: 1, 60: 3, 160: 1}  # from an iteration on
    wanted = [1]

    class Swinging(Adaptive):
        async def target(self) -> int:
            return wanted[0]

    class WhileItSwings:
        def __init__(self, problem: Problem) -> None:
            self._schedule = block(problem)

        def run(self, state: Any) -> Iterator[Any]:
            for now in self._schedule.run(state):
                wanted[0] = sizes[max(at for at in sizes if at <= now.iteration)]
                until(lambda: len(local.scheduler.workers) == wanted[0])
                swung.add(wanted[0])
                yield now

    swung: set[int] = set()
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as local:
        local.adapt(Adaptive=Swinging, minimum=1, maximum=3, interval="50ms", wait_count=1)
        config = ClusterConfig(kind="address", address=local.scheduler_address)
        with (
            connect(config, print, lambda: False) as cluster,
            open_dataset(stores / FORMS[0]) as dataset,
        ):
            backend = DaskBackend(dataset, str(stores / FORMS[0]), KERNEL, cluster, MEMORY)
            assert trained(backend, dataset, WhileItSwings, 250) == expected["block"]
        assert swung == {1, 3}
        names = set(local.scheduler.task_prefixes)
        assert {"bigsvm-gather", "bigsvm-matvec"} <= names, "what the dashboard shows"
