"""The workers of a Dask cluster: checking them, computing on them, noticing lost ones."""

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from bigsvm.cluster.worker_process import UnfitWorker
from bigsvm.config import ClusterConfig
from bigsvm.core.errors import ClusterLost, UserError
from bigsvm.core.messages import format_duration, one_line

if TYPE_CHECKING:
    from distributed import Client, Future

POLL_SECONDS = 0.5
_MAX_UNFIT_IN_A_ROW = 5
# A worker reports every half second; in clusters of hundreds every few seconds.
_SILENT_SECONDS = 20.0
_CHECK_SECONDS = 5.0


class PendingTasks(NamedTuple):
    """Tasks sent to the workers at `addresses`."""

    futures: "list[Future]"
    addresses: set[str]


class Cluster:
    """The workers of a command.

    Parameters
    ----------
    client : distributed.Client
    wait_limit : float
        Seconds to wait for workers when there are none.
    log : callable
        Shows a line to the user.
    interrupted : callable
        Returns whether to give up waiting.
    restart : callable
        Restarts lost workers if they are ours to restart.

    Attributes
    ----------
    loss : ClusterLost or None
        Set once the cluster is lost; nothing is sent to it from then on.
    """

    def __init__(
        self,
        client: "Client",
        wait_limit: float,
        log: Callable[[str], None],
        interrupted: Callable[[], bool],
        restart: Callable[[], None],
    ) -> None:
        self.loss: ClusterLost | None = None
        self._restart = restart
        self._client = client
        self._address = client.scheduler.address
        self._wait_limit = wait_limit
        self._log = log
        self._interrupted = interrupted
        self._empty_since: float | None = None
        self._unfit_in_a_row = 0
        self._order: list[str] = []
        self._fit: dict[str, bool] = {}
        self._probe: tuple[Callable, ...] = ()
        self._mismatch: Callable[[Any], str | None] = lambda seen: None

    def wait_for(self, count: int) -> None:
        """Wait until there are `count` workers."""
        deadline = time.monotonic() + self._wait_limit
        limit = format_duration(self._wait_limit)
        if len(self._ask(self._client.nthreads)) < count:
            plural = "s" if count > 1 else ""
            self._log(f"waiting for {count} worker{plural}, at most {limit} (cluster.wait_limit)")
        while (present := len(self._ask(self._client.nthreads))) < count:
            if self._interrupted():
                raise self._lost("interrupted while waiting for workers")
            if time.monotonic() >= deadline:
                raise self._lost(
                    f"{present} of {count} workers came in {limit} (cluster.workers, "
                    "cluster.wait_limit)"
                )
            time.sleep(POLL_SECONDS)

    def check_workers(
        self, mismatch: Callable[[Any], str | None], probe: Callable, *args: Any
    ) -> None:
        """Run ``probe(*args)`` on every worker, including those that join later.

        ``mismatch`` explains what is wrong with a result of the probe, or returns None. An unfit
        worker is an error now; one that joins later is reported and left out.
        """
        self._probe, self._mismatch = (probe, *args), mismatch
        for address, reason in self._unfit(list(self._ask(self._client.nthreads))).items():
            if reason:
                raise UserError(f"the worker at {address} {reason}")

    def workers(self) -> dict[str, int]:
        """The fit workers and their threads; waits while there are none.

        The order is stable, with new workers in the positions of lost ones, so that most workers
        serve the rows they already hold.
        """
        while not (present := self._present()):
            self._wait_for_any()
            time.sleep(POLL_SECONDS)
        self._report_return(len(present))
        newcomers = [address for address in present if address not in self._order]
        order = [a if a in present else newcomers.pop() if newcomers else "" for a in self._order]
        self._order = [a for a in order if a] + newcomers
        return {address: present[address] for address in self._order}

    def compute(
        self, function: Callable, calls: list[tuple[str, tuple[Any, ...]]]
    ) -> list[Any] | None:
        """Compute ``function(*arguments)`` on the worker of each (worker, arguments) of `calls`.

        Another worker takes over from one that dies. None if all of them died, or an unfit worker
        took over: the caller must then divide the work again.
        """
        return self.collect(self.send(function, calls))

    def send(self, function: Callable, calls: list[tuple[str, tuple[Any, ...]]]) -> PendingTasks:
        """Start `compute` without waiting for the results."""
        if self.loss is not None:
            raise self.loss
        try:
            # A common key prefix, so that the dashboard shows the progress of a pass.
            group = f"bigsvm-{function.__name__}-{uuid.uuid4().hex}"
            futures = [
                self._client.submit(
                    function,
                    *arguments,
                    key=(group, number),
                    workers=[address],
                    allow_other_workers=True,
                )
                for number, (address, arguments) in enumerate(calls)
            ]
        except Exception as problem:
            if self._client.status == "running":
                raise
            raise self._lost("its scheduler is gone") from problem
        return PendingTasks(futures, {address for address, _ in calls})

    def collect(self, sent: PendingTasks) -> list[Any] | None:
        """Wait for tasks that were sent; returns what `compute` returns."""
        from distributed import KilledWorker
        from distributed.comm import CommClosedError

        try:
            results = self._gather(*sent)
            self._unfit_in_a_row = 0
            return results
        except KilledWorker as killed:
            raise self._lost(
                f"{killed.allowed_failures + 1} workers died over the same piece of work; perhaps "
                "they have too little memory (solver.memory_limit is for each of them)"
            ) from killed
        except (CommClosedError, CancelledError, asyncio.CancelledError) as problem:
            raise self._lost("its scheduler is gone") from problem
        except ClusterLost:
            raise
        except UserError as mistake:  # in the data or the config, not in the cluster
            raise UserError(f"on a worker: {mistake}") from mistake
        except Exception as problem:
            if self._client.status != "running" and self.loss is None:
                raise self._lost("its scheduler is gone") from problem
            self._unfit_in_a_row += 1
            unfit = isinstance(problem, UnfitWorker | ImportError | AttributeError)
            if not unfit or self._unfit_in_a_row > _MAX_UNFIT_IN_A_ROW:
                raise self._lost(f"a worker failed ({one_line(problem)})") from problem
            time.sleep(POLL_SECONDS)
            self._log(f"warning: a worker that has just joined cannot compute ({problem})")
            return None

    def _gather(self, futures: "list[Future]", addresses: set[str]) -> list[Any] | None:
        loop: Any = self._client.loop
        heartbeats = Heartbeats(self._last_seen, self._log)
        pending = asyncio.run_coroutine_threadsafe(
            self._client.gather(futures, asynchronous=True), loop.asyncio_loop
        )
        try:
            while True:
                try:
                    return list(pending.result(timeout=POLL_SECONDS))
                except TimeoutError:
                    if pending.done():
                        raise
                    present = self._present()
                    heartbeats.check(addresses)
                    if not present:
                        self._wait_for_any()
                    elif addresses.isdisjoint(present):
                        # A task that could not be placed for a moment stays assigned to its lost
                        # worker, although Dask may run it elsewhere.
                        return None
        finally:
            pending.cancel()
            for future in futures:
                future.release()

    def _last_seen(self) -> dict[str, float]:
        """When the scheduler last heard from each worker, by its own clock."""
        about = self._ask(self._client.sync, self._client.scheduler.identity)
        return {address: worker["last_seen"] for address, worker in about["workers"].items()}

    def _present(self) -> dict[str, int]:
        threads = self._ask(self._client.nthreads)
        newcomers = [address for address in threads if address not in self._fit]
        for address, reason in self._unfit(newcomers).items():
            if reason:
                self._log(f"warning: left out: the worker at {address} {reason}")
        return {address: count for address, count in threads.items() if self._fit.get(address)}

    def _unfit(self, addresses: list[str]) -> dict[str, str | None]:
        """Why each worker is unfit, or None; leaves out workers that died in the meantime."""
        if not addresses:
            return {}
        probe, *arguments = self._probe
        answers = self._ask(
            self._client.run, probe, *arguments, workers=addresses, on_error="return"
        )
        reasons: dict[str, str | None] = {}
        for address, seen in answers.items():
            if isinstance(seen, OSError):
                continue
            if isinstance(seen, Exception):
                reasons[address] = f"cannot run this bigsvm ({one_line(seen)}); install it there"
            else:
                reasons[address] = self._mismatch(seen)
            self._fit[address] = reasons[address] is None
        return reasons

    def _ask(self, request: Callable, *arguments: Any, **options: Any) -> Any:
        """Send a request to the scheduler."""
        if self.loss is not None:
            raise self.loss
        try:
            if self._client.status == "running":
                return request(*arguments, **options)
        except (OSError, CancelledError, asyncio.CancelledError) as problem:
            raise self._lost("its scheduler is gone") from problem
        raise self._lost("its scheduler is gone")

    def _wait_for_any(self) -> None:
        """Restart workers where possible; raise ClusterLost once the wait limit has passed."""
        if self._empty_since is None:
            self._empty_since = time.monotonic()
            limit = format_duration(self._wait_limit)
            self._log(f"no workers left; waiting for some, at most {limit} (cluster.wait_limit)")
        if self._interrupted():
            raise self._lost("interrupted while waiting for workers")
        self._restart()
        if time.monotonic() - self._empty_since >= self._wait_limit:
            raise self._lost(
                f"no workers for {format_duration(self._wait_limit)} (cluster.wait_limit)"
            )

    def _report_return(self, count: int) -> None:
        if self._empty_since is not None:
            self._empty_since = None
            self._log(f"continuing with {count} worker{'s' if count > 1 else ''}")

    def _lost(self, why: str) -> ClusterLost:
        self.loss = ClusterLost(self._address, why)
        return self.loss


class Heartbeats:
    """Reports silent workers (frozen, swapping or cut off), once each.

    Parameters
    ----------
    last_seen : callable
        Returns when the scheduler last heard from each worker, by its own clock.
    log : callable
        Shows a line to the user.
    """

    def __init__(
        self, last_seen: Callable[[], Mapping[str, float]], log: Callable[[str], None]
    ) -> None:
        self._last_seen = last_seen
        self._log = log
        self._since: dict[str, tuple[float, float]] = {}
        self._checked = time.monotonic()

    def check(self, addresses: set[str]) -> None:
        """Report workers among `addresses` that are silent; queries the scheduler only rarely."""
        now = time.monotonic()
        if now < self._checked + _CHECK_SECONDS:
            return
        self._checked = now
        for address, seen in self._last_seen().items():
            before, since = self._since.get(address, (None, now))
            if seen != before:
                self._since[address] = seen, now
            elif address in addresses and now - since >= _SILENT_SECONDS:
                self._since[address] = seen, float("inf")  # reported
                self._log(
                    f"waiting for the worker at {address}, silent for {now - since:.0f} s; Dask "
                    "gives it up after distributed.scheduler.worker-ttl"
                )


@contextmanager
def connect_if_any(
    config: ClusterConfig, log: Callable[[str], None], interrupted: Callable[[], bool]
) -> Iterator[Cluster | None]:
    """Yield the cluster of a config; None for kind `none`."""
    if config.kind == "none":
        yield None
        return
    from bigsvm.cluster.start import connect  # Dask takes a second to import

    with connect(config, log, interrupted) as cluster:
        yield cluster
