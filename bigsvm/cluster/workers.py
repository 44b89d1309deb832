"""The workers of a Dask cluster: examined, asked to compute, their losses noticed."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, NamedTuple

from bigsvm.cluster.heartbeats import Heartbeats
from bigsvm.core.errors import ClusterLost, UserError
from bigsvm.core.messages import format_duration, one_line

if TYPE_CHECKING:
    from distributed import Client, Future

POLL_SECONDS = 0.5
_UNFIT_IN_A_ROW = 5


class PendingTasks(NamedTuple):
    """Work on its way to the workers that are `asked` for it."""

    futures: "list[Future]"
    asked: set[str]


class Cluster:
    """Workers to compute on.

    Parameters
    ----------
    client : distributed.Client
    wait_limit : float
        Seconds to wait for workers when there are none.
    say : callable
        Shows a line to the user.
    interrupted : callable
        Whether to give up waiting.
    revive : callable
        Sees to it that there will be workers again, where that is up to us.

    Attributes
    ----------
    loss : ClusterLost or None
        Set once the cluster is lost; from then on nothing more is asked of it.
    """

    def __init__(
        self,
        client: "Client",
        wait_limit: float,
        say: Callable[[str], None],
        interrupted: Callable[[], bool],
        revive: Callable[[], None],
    ) -> None:
        self.loss: ClusterLost | None = None
        self._revive = revive
        self._client = client
        self._address = client.scheduler.address
        self._wait_limit = wait_limit
        self._say = say
        self._interrupted = interrupted
        self._alone_since: float | None = None
        self._unfit_in_a_row = 0
        self._places: list[str] = []
        self._fit: dict[str, bool] = {}
        self._look: tuple[Callable, ...] = ()
        self._difference: Callable[[Any], str | None] = lambda seen: None

    def wait_for(self, count: int) -> None:
        """Wait until there are so many workers."""
        deadline = time.monotonic() + self._wait_limit
        limit = format_duration(self._wait_limit)
        if len(self._ask(self._client.nthreads)) < count:
            plural = "s" if count > 1 else ""
            self._say(f"waiting for {count} worker{plural}, at most {limit} (cluster.wait_limit)")
        while (there := len(self._ask(self._client.nthreads))) < count:
            if self._interrupted():
                raise self._lost("interrupted while waiting for workers")
            if time.monotonic() >= deadline:
                raise self._lost(
                    f"{there} of {count} workers came in {limit} (cluster.workers, "
                    "cluster.wait_limit)"
                )
            time.sleep(POLL_SECONDS)

    def examine(self, difference: Callable[[Any], str | None], look: Callable, *args: Any) -> None:
        """Let ``look(*args)`` run on every worker, those to come too.

        ``difference`` says in what the answer is not as it should be. A worker that is unfit
        now is the user's mistake; one that comes later is told, and left out.
        """
        self._look, self._difference = (look, *args), difference
        for address, reason in self._examined(list(self._ask(self._client.nthreads))).items():
            if reason:
                raise UserError(f"the worker at {address} {reason}")

    def workers(self) -> dict[str, int]:
        """The fit workers and their threads; waits while there are none.

        In the same order as before, newcomers in the places of those gone, so that most workers
        are asked for the rows they have read already.
        """
        while not (present := self._present()):
            self._wait_on()
            time.sleep(POLL_SECONDS)
        self._welcome_back(len(present))
        newcomers = [address for address in present if address not in self._places]
        places = [p if p in present else newcomers.pop() if newcomers else "" for p in self._places]
        self._places = [p for p in places if p] + newcomers
        return {address: present[address] for address in self._places}

    def compute(
        self, function: Callable, calls: list[tuple[str, tuple[Any, ...]]]
    ) -> list[Any] | None:
        """``function(*arguments)`` for each (worker, arguments), by that worker if it lives.

        A worker that dies is replaced by another one. None where all of them died, or an unfit one
        stepped in: the caller has to divide the work anew.
        """
        return self.collect(self.send(function, calls))

    def send(self, function: Callable, calls: list[tuple[str, tuple[Any, ...]]]) -> PendingTasks:
        """Begin to `compute`."""
        if self.loss is not None:
            raise self.loss
        try:
            futures = [
                self._client.submit(
                    function, *arguments, workers=[address], allow_other_workers=True, pure=False
                )
                for address, arguments in calls
            ]
        except Exception as problem:
            if self._client.status == "running":
                raise
            raise self._lost("its scheduler is gone") from problem
        return PendingTasks(futures, {address for address, _ in calls})

    def collect(self, sent: PendingTasks) -> list[Any] | None:
        """The answers to what was sent, as `compute` gives them."""
        from distributed import KilledWorker
        from distributed.comm import CommClosedError

        from bigsvm.cluster.worker_process import UnfitWorker

        try:
            answers = self._collected(*sent)
            self._unfit_in_a_row = 0
            return answers
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
            if not unfit or self._unfit_in_a_row > _UNFIT_IN_A_ROW:
                raise self._lost(f"a worker failed ({one_line(problem)})") from problem
            time.sleep(POLL_SECONDS)
            self._say(f"warning: a worker that came in between cannot compute ({problem})")
            return None

    def _collected(self, futures: "list[Future]", asked: set[str]) -> list[Any] | None:
        loop: Any = self._client.loop
        heartbeats = Heartbeats(self._last_seen, self._say)
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
                    heartbeats.look(asked)
                    if not present:
                        self._wait_on()
                    elif asked.isdisjoint(present):
                        # A task that Dask could place nowhere for a moment would wait for the
                        # worker it was meant for, though others may have it too.
                        return None
        finally:
            pending.cancel()
            for future in futures:
                future.release()

    def _last_seen(self) -> dict[str, float]:
        """When the scheduler has heard of each worker, by its clock."""
        about = self._ask(self._client.sync, self._client.scheduler.identity)
        return {address: worker["last_seen"] for address, worker in about["workers"].items()}

    def _present(self) -> dict[str, int]:
        threads = self._ask(self._client.nthreads)
        newcomers = [address for address in threads if address not in self._fit]
        for address, reason in self._examined(newcomers).items():
            if reason:
                self._say(f"warning: left out: the worker at {address} {reason}")
        return {address: count for address, count in threads.items() if self._fit.get(address)}

    def _examined(self, addresses: list[str]) -> dict[str, str | None]:
        """Why each is unfit, or None; those that died meanwhile are not in it."""
        if not addresses:
            return {}
        look, *arguments = self._look
        answers = self._ask(
            self._client.run, look, *arguments, workers=addresses, on_error="return"
        )
        reasons: dict[str, str | None] = {}
        for address, seen in answers.items():
            if isinstance(seen, OSError):
                continue
            if isinstance(seen, Exception):
                reasons[address] = f"cannot run this bigsvm ({one_line(seen)}); install it there"
            else:
                reasons[address] = self._difference(seen)
            self._fit[address] = reasons[address] is None
        return reasons

    def _ask(self, request: Callable, *arguments: Any, **options: Any) -> Any:
        """A question to the scheduler."""
        if self.loss is not None:
            raise self.loss
        try:
            if self._client.status == "running":
                return request(*arguments, **options)
        except (OSError, CancelledError, asyncio.CancelledError) as problem:
            raise self._lost("its scheduler is gone") from problem
        raise self._lost("its scheduler is gone")

    def _wait_on(self) -> None:
        """There is no worker: bear it for a while."""
        if self._alone_since is None:
            self._alone_since = time.monotonic()
            limit = format_duration(self._wait_limit)
            self._say(f"no workers left; waiting for some, at most {limit} (cluster.wait_limit)")
        if self._interrupted():
            raise self._lost("interrupted while waiting for workers")
        self._revive()
        if time.monotonic() - self._alone_since >= self._wait_limit:
            raise self._lost(
                f"no workers for {format_duration(self._wait_limit)} (cluster.wait_limit)"
            )

    def _welcome_back(self, count: int) -> None:
        if self._alone_since is not None:
            self._alone_since = None
            self._say(f"going on with {count} worker{'s' if count > 1 else ''}")

    def _lost(self, why: str) -> ClusterLost:
        self.loss = ClusterLost(self._address, why)
        return self.loss
