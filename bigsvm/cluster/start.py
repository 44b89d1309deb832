"""The Dask cluster of a config: started on this machine, or joined where it is."""

import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigsvm.cluster.workers import POLL_SECONDS, Cluster
from bigsvm.config import ClusterConfig
from bigsvm.core.errors import ClusterLost, UserError
from bigsvm.core.messages import format_duration, one_line

if TYPE_CHECKING:
    from distributed import Client, Security

ALLOWED = "BIGSVM_ALLOWED_CLUSTERS"  # addresses; "none" for no scheduler at all
_CONNECT_SECONDS = 10.0
_WRITING_SECONDS = 3.0
_STARTS = 3
# A worker of our own that does not stir for so long is given up, and its rows are the others'; on
# one machine neither a network nor much else can hold its heartbeats. (Dask waits 5 minutes.)
_WORKER_TTL = "60s"
# Dask watches its own processes, a hundred times a second: a tenth of the time of a pass.
_UNWATCHED = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "5s",
    "distributed.admin.system-monitor.gil.enabled": False,
}


@contextmanager
def connect(
    config: ClusterConfig, say: Callable[[str], None], interrupted: Callable[[], bool]
) -> Iterator[Cluster | None]:
    """The cluster of a config, started if it is a local one; None for kind `none`."""
    if config.kind == "none":
        yield None
        return
    try:
        from distributed import Client

        from bigsvm.cluster.worker_process import use_monotonic_clock
    except ImportError as missing:
        raise UserError(
            f'cluster.kind = {config.kind!r}: Dask is missing; pip install "bigsvm[dask]"'
        ) from missing
    for name in list(logging.root.manager.loggerDict):
        if name.split(".")[0] in ("distributed", "asyncio", "tornado"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # what matters is told by us
    use_monotonic_clock()
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
            _check_allowed(place)
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


def _check_allowed(address: str) -> None:
    """Refuse a scheduler that the environment does not name, where it names any.

    What a scheduler answers is unpickled, so that it can run code here. A config of one's own says
    by itself that it is trusted; that of a stranger does not.
    """
    allowed = os.environ.get(ALLOWED)
    if allowed is None:
        return
    named = {_with_protocol(entry.strip()) for entry in allowed.split(",")}
    if _with_protocol(address) not in named:
        raise UserError(
            f"cluster: the scheduler at {address} is not among those of {ALLOWED}={allowed}; it "
            "could run code here, so add it only if you trust it"
        )


def _with_protocol(address: str) -> str:
    return address if "://" in address else f"tcp://{address}"


def _local_cluster(
    config: ClusterConfig, security: "Security | None", interrupted: Callable[[], bool]
) -> Any:
    import dask
    from distributed import LocalCluster

    for tries_left in reversed(range(_STARTS)):
        try:
            with dask.config.set({"distributed.scheduler.worker-ttl": _WORKER_TTL, **_UNWATCHED}):
                return LocalCluster(
                    n_workers=config.workers,
                    threads_per_worker=config.threads_per_worker or 1,
                    # Chunks are kept within a bound of our own; Dask's would write tasks to disk.
                    memory_limit=None,
                    dashboard_address=None,
                    silence_logs=logging.CRITICAL,
                    security=security,
                    preload=["bigsvm.cluster.worker_process"],
                    config=_UNWATCHED,  # those that are started later, too
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
        say(f"waiting for {path}, at most {format_duration(limit)} (cluster.wait_limit)")
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
            time.sleep(POLL_SECONDS)
            written_by = time.monotonic() + _WRITING_SECONDS
        except (OSError, ValueError, LookupError, TypeError) as problem:
            if time.monotonic() < written_by:  # the scheduler writes it in place
                time.sleep(POLL_SECONDS)
                continue
            raise UserError(
                f"cluster.scheduler_file = {path}: is not what a Dask scheduler writes "
                f"({one_line(problem)})"
            ) from problem


def _close(client: "Client") -> None:
    with suppress(OSError):  # a scheduler that is gone needs no good-bye
        client.close(timeout=_CONNECT_SECONDS)
