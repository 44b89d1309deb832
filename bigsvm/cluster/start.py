"""Connecting to the Dask cluster of a config, or starting one on this machine."""

import asyncio
import ipaddress
import json
import logging
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import dask
from distributed import Client, LocalCluster, Security
from distributed.comm import connect as connect_to
from distributed.comm.addressing import get_address_host
from distributed.core import Status

from bigsvm.cluster.worker_process import use_monotonic_clock
from bigsvm.cluster.workers import POLL_SECONDS, Cluster
from bigsvm.config import ClusterConfig
from bigsvm.core.errors import ClusterLost, UserError
from bigsvm.core.messages import format_duration, one_line

ALLOWED = "BIGSVM_ALLOWED_CLUSTERS"  # addresses; "none" for no scheduler at all
_CONNECT_SECONDS = 10.0
_WRITING_SECONDS = 3.0
_START_ATTEMPTS = 3
# A local worker that is silent for this long is given up, and the others take over its rows. Dask's
# default is five minutes, but on one machine no network delays heartbeats.
_WORKER_TTL = "60s"
# Dask profiles its own processes a hundred times a second, which takes a tenth of a pass.
_NO_PROFILING = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "5s",
    "distributed.admin.system-monitor.gil.enabled": False,
}


@contextmanager
def connect(
    config: ClusterConfig, log: Callable[[str], None], interrupted: Callable[[], bool]
) -> Iterator[Cluster]:
    """Yield the cluster of a config, started first if it is local."""
    for name in list(logging.root.manager.loggerDict):
        if name.split(".")[0] in ("distributed", "asyncio", "tornado"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # we report what matters
    use_monotonic_clock()
    security = _security(config)
    with ExitStack() as stack:
        scheduler: Any
        if config.kind == "local":
            scheduler = stack.enter_context(_local_cluster(config, security, interrupted))
        else:
            scheduler = config.address
            if config.kind == "scheduler_file":
                path = Path(config.scheduler_file or "")
                scheduler = _read_scheduler_file(path, config.wait_limit, log, interrupted)
            _check_allowed(scheduler, config)
        try:
            if config.kind != "local":
                _check_answers(scheduler, security)
            client = Client(
                scheduler, security=security, timeout=_CONNECT_SECONDS, set_as_default=False
            )
        except (OSError, ValueError) as problem:
            raise UserError(
                f"cluster.{config.kind} = {getattr(config, config.kind, None)}: no Dask scheduler "
                f"answers there ({one_line(problem)})"
            ) from problem
        stack.callback(_close, client)

        def restart() -> None:  # the workers of an existing cluster are not ours to restart
            if config.kind == "local":
                _restart_lost(scheduler)

        cluster = Cluster(client, config.wait_limit, log, interrupted, restart)
        cluster.wait_for(config.workers or 1)
        yield cluster


def _check_allowed(address: str, config: ClusterConfig) -> None:
    """Reject an untrusted scheduler: its answers are unpickled, which can run any code.

    BIGSVM_ALLOWED_CLUSTERS, if set, lists the trusted schedulers. Otherwise one named on the
    command line is trusted, and one named in a config file only if it is in the private network.
    """
    allowed = os.environ.get(ALLOWED)
    if allowed is not None:
        named = {_with_protocol(entry.strip()) for entry in allowed.split(",")}
        if _with_protocol(address) not in named:
            raise UserError(
                f"cluster: the scheduler at {address} is not among those of {ALLOWED}={allowed}; "
                "it could run code here, so add it only if you trust it"
            )
    elif config.named_in_file and not _is_private(address):
        named_as = f"cluster.{config.kind}={getattr(config, config.kind)}"
        raise UserError(
            f"cluster: the scheduler at {address} lies outside the private network and is named "
            f"only in the config; it could run code here, so add --set {named_as} if you trust it"
        )


def _with_protocol(address: str) -> str:
    return address if "://" in address else f"tcp://{address}"


def _is_private(address: str) -> bool:
    """Whether the host is a private IP address, or a name without a domain.

    Other names are not resolved: they may resolve to another address when Dask connects.
    """
    try:
        host = get_address_host(address)
    except ValueError:
        return False
    try:
        # inet_aton also parses the numeric forms that the resolver accepts, such as 0x8080808.
        ip: Any = ipaddress.ip_address(socket.inet_aton(host))
    except OSError:
        try:
            ip = ipaddress.ip_address(host)
        except ValueError:
            return re.fullmatch(r"[A-Za-z0-9_-]+", host) is not None
    return not (getattr(ip, "ipv4_mapped", None) or ip).is_global


def _check_answers(address: str, security: Security | None) -> None:
    """Do the handshake with the scheduler first: Dask's client has no timeout for it."""

    async def handshake() -> None:
        options = (security or Security()).get_connection_args("client")
        comm = await connect_to(address, _CONNECT_SECONDS, deserialize=False, **options)
        comm.abort()

    async def with_timeout() -> None:
        try:
            await asyncio.wait_for(handshake(), _CONNECT_SECONDS)
        except TimeoutError as late:
            within = format_duration(_CONNECT_SECONDS)
            raise OSError(f"something listens there, but does not answer within {within}") from late
        except (OSError, ValueError):
            raise
        except Exception as other:  # a server of another kind may answer with anything
            raise OSError("what listens there speaks another protocol") from other

    asyncio.run(with_timeout())


def _local_cluster(
    config: ClusterConfig, security: Security | None, interrupted: Callable[[], bool]
) -> Any:
    for attempts_left in reversed(range(_START_ATTEMPTS)):
        try:
            with dask.config.set(
                {"distributed.scheduler.worker-ttl": _WORKER_TTL, **_NO_PROFILING}
            ):
                return LocalCluster(
                    n_workers=config.workers,
                    threads_per_worker=config.threads_per_worker or 1,
                    # We limit the memory of a worker ourselves; Dask would spill tasks to disk.
                    memory_limit=None,
                    dashboard_address=None,
                    silence_logs=logging.CRITICAL,
                    security=security,
                    preload=["bigsvm.cluster.worker_process"],
                    config=_NO_PROFILING,  # also for workers that are started later
                )
        except (RuntimeError, OSError, TimeoutError) as problem:  # a worker died while starting
            if interrupted() or not attempts_left:
                why = f"its workers do not start ({one_line(problem)})"
                raise ClusterLost("of this machine", why) from problem


def _restart_lost(local: Any) -> None:
    """Restart workers that Dask has given up because they died, or were slow, while starting.

    Dask does not restart these itself.
    """

    def replace_lost() -> None:
        for name, nanny in list(local.workers.items()):
            if nanny.status in (Status.closed, Status.failed):
                del local.workers[name]
        local.scale(len(local.worker_spec))

    local.loop.add_callback(replace_lost)


def _security(config: ClusterConfig) -> Security | None:
    if config.tls_ca is None:
        return None
    for key in ("tls_ca", "tls_cert", "tls_key"):
        path = getattr(config, key)
        if not Path(path).is_file():
            raise UserError(f"cluster.{key} = {path}: there is no such file")
    roles = ("client", "scheduler", "worker")
    return Security(
        require_encryption=True,
        tls_ca_file=config.tls_ca,
        **{f"tls_{role}_cert": config.tls_cert for role in roles},
        **{f"tls_{role}_key": config.tls_key for role in roles},
    )


def _read_scheduler_file(
    path: Path, limit: float, log: Callable[[str], None], interrupted: Callable[[], bool]
) -> str:
    """The address in a scheduler file; waits for a scheduler that has not written it yet."""
    deadline = time.monotonic() + limit
    written_by = time.monotonic() + _WRITING_SECONDS
    if not path.exists():
        log(f"waiting for {path}, at most {format_duration(limit)} (cluster.wait_limit)")
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
            if time.monotonic() < written_by:  # the scheduler does not write it atomically
                time.sleep(POLL_SECONDS)
                continue
            raise UserError(
                f"cluster.scheduler_file = {path}: is not what a Dask scheduler writes "
                f"({one_line(problem)})"
            ) from problem


def _close(client: Client) -> None:
    with suppress(OSError):  # the scheduler may be gone
        client.close(timeout=_CONNECT_SECONDS)
