"""A Dask cluster: started or joined, its workers examined, its losses noticed."""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bigsvm.config import ClusterConfig
from bigsvm.display import as_time
from bigsvm.errors import ClusterLost, UserError
from bigsvm.heartbeats import Heartbeats
from bigsvm.store_place import one_line

if TYPE_CHECKING:
    from distributed import Client, Future, Security

_CONNECT_SECONDS = 10.0
_POLL_SECONDS = 0.5
_WRITING_SECONDS = 3.0
_STARTS = 3
# A worker of our own that does not stir for so long is given up, and its rows are the others'; on
# one machine neither a network nor much else can hold its heartbeats. (Dask waits 5 minutes.)
_WORKER_TTL = "60s"
_UNFIT_IN_A_ROW = 5


class Sent(NamedTuple):
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
        limit = as_time(self._wait_limit)
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
            time.sleep(_POLL_SECONDS)

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
            time.sleep(_POLL_SECONDS)
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

    def send(self, function: Callable, calls: list[tuple[str, tuple[Any, ...]]]) -> Sent:
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
        return Sent(futures, {address for address, _ in calls})

    def collect(self, sent: Sent) -> list[Any] | None:
        """The answers to what was sent, as `compute` gives them."""
        from distributed import KilledWorker
        from distributed.comm import CommClosedError

        from bigsvm.backends.worker import UnfitWorker

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
            time.sleep(_POLL_SECONDS)
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
                    return list(pending.result(timeout=_POLL_SECONDS))
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
            limit = as_time(self._wait_limit)
            self._say(f"no workers left; waiting for some, at most {limit} (cluster.wait_limit)")
        if self._interrupted():
            raise self._lost("interrupted while waiting for workers")
        self._revive()
        if time.monotonic() - self._alone_since >= self._wait_limit:
            raise self._lost(f"no workers for {as_time(self._wait_limit)} (cluster.wait_limit)")

    def _welcome_back(self, count: int) -> None:
        if self._alone_since is not None:
            self._alone_since = None
            self._say(f"going on with {count} worker{'s' if count > 1 else ''}")

    def _lost(self, why: str) -> ClusterLost:
        self.loss = ClusterLost(self._address, why)
        return self.loss


@contextmanager
def connected(
    config: ClusterConfig, say: Callable[[str], None], interrupted: Callable[[], bool]
) -> Iterator[Cluster | None]:
    """The cluster of a config, started if it is a local one; None for kind `none`."""
    if config.kind == "none":
        yield None
        return
    try:
        from distributed import Client

        from bigsvm.backends.worker import send_by_a_steady_clock
    except ImportError as missing:
        raise UserError(
            f'cluster.kind = {config.kind!r}: Dask is missing; pip install "bigsvm[dask]"'
        ) from missing
    for name in list(logging.root.manager.loggerDict):
        if name.split(".")[0] in ("distributed", "asyncio", "tornado"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # what matters is told by us
    send_by_a_steady_clock()
    security = _security(config)
    with ExitStack() as stack:
        place: Any
        if config.kind == "local":
            place = stack.enter_context(_local_cluster(config, security, interrupted))
        else:
            place = config.address
            if config.kind == "scheduler_file":
                path = Path(config.scheduler_file or "")
                place = _address_in(path, config.wait_limit, say, interrupted)
        try:
            client = Client(
                place, security=security, timeout=_CONNECT_SECONDS, set_as_default=False
            )
        except (OSError, ValueError) as problem:
            raise UserError(
                f"cluster.{config.kind} = {getattr(config, config.kind, None)}: no Dask scheduler "
                f"answers there ({one_line(problem)})"
            ) from problem
        stack.callback(_close, client)
        revive = partial(_revive, place) if config.kind == "local" else _nothing
        cluster = Cluster(client, config.wait_limit, say, interrupted, revive)
        cluster.wait_for(config.workers or 1)
        yield cluster


def _local_cluster(
    config: ClusterConfig, security: "Security | None", interrupted: Callable[[], bool]
) -> Any:
    import dask
    from distributed import LocalCluster

    for tries_left in reversed(range(_STARTS)):
        try:
            with dask.config.set({"distributed.scheduler.worker-ttl": _WORKER_TTL}):
                return LocalCluster(
                    n_workers=config.workers,
                    threads_per_worker=config.threads_per_worker or 1,
                    # Chunks are kept within a bound of our own; Dask's would write tasks to disk.
                    memory_limit=None,
                    dashboard_address=None,
                    silence_logs=logging.CRITICAL,
                    security=security,
                    preload=["bigsvm.backends.worker"],
                )
        except (RuntimeError, OSError, TimeoutError) as problem:  # one of them died on the way
            if interrupted() or not tries_left:
                why = f"its workers do not start ({one_line(problem)})"
                raise ClusterLost("of this machine", why) from problem


def _revive(local: Any) -> None:
    """Start workers again that Dask has given up: those that died, or took long, as they started.

    Nobody else would bring any.
    """
    from distributed.core import Status

    def replace_the_lost() -> None:
        for name, nanny in list(local.workers.items()):
            if nanny.status in (Status.closed, Status.failed):
                del local.workers[name]
        local.scale(len(local.worker_spec))

    local.loop.add_callback(replace_the_lost)


def _nothing() -> None:
    """Others start the workers of a cluster that was there before."""


def _security(config: ClusterConfig) -> "Security | None":
    if config.tls_ca is None:
        return None
    from distributed import Security

    for key in ("tls_ca", "tls_cert", "tls_key"):
        path = getattr(config, key)
        if not Path(path).is_file():
            raise UserError(f"cluster.{key} = {path}: there is no such file")
    parties = ("client", "scheduler", "worker")
    return Security(
        require_encryption=True,
        tls_ca_file=config.tls_ca,
        **{f"tls_{party}_cert": config.tls_cert for party in parties},
        **{f"tls_{party}_key": config.tls_key for party in parties},
    )


def _address_in(
    path: Path, limit: float, say: Callable[[str], None], interrupted: Callable[[], bool]
) -> str:
    """The address in a scheduler file, which the scheduler may be about to write."""
    deadline = time.monotonic() + limit
    written_by = time.monotonic() + _WRITING_SECONDS
    if not path.exists():
        say(f"waiting for {path}, at most {as_time(limit)} (cluster.wait_limit)")
    while True:
        try:
            return str(json.loads(path.read_text())["address"])
        except FileNotFoundError as missing:
            if time.monotonic() >= deadline:
                raise UserError(
                    f"cluster.scheduler_file = {path}: there is no such file; start a scheduler "
                    f"with: dask scheduler --scheduler-file {path}"
                ) from missing
            if interrupted():
                raise ClusterLost(str(path), "interrupted while waiting for it") from missing
            time.sleep(_POLL_SECONDS)
            written_by = time.monotonic() + _WRITING_SECONDS
        except (OSError, ValueError, LookupError, TypeError) as problem:
            if time.monotonic() < written_by:  # the scheduler writes it in place
                time.sleep(_POLL_SECONDS)
                continue
            raise UserError(
                f"cluster.scheduler_file = {path}: is not what a Dask scheduler writes "
                f"({one_line(problem)})"
            ) from problem


def _close(client: "Client") -> None:
    with suppress(OSError):  # a scheduler that is gone needs no good-bye
        client.close(timeout=_CONNECT_SECONDS)
