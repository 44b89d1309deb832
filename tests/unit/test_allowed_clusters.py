"""A config from a stranger may name a Dask scheduler, whose answers are unpickled."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from bigsvm.cluster.start import ALLOWED, _check_allowed, connect
from bigsvm.config import ClusterConfig
from bigsvm.core.errors import UserError


@pytest.fixture
def stranger() -> Iterator[socket.socket]:
    """A scheduler that notices who connects to it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield listener


def join(config: ClusterConfig) -> None:
    with connect(config, lambda line: None, lambda: False):
        pass


@pytest.mark.parametrize(
    "allowed", ["none", "", "tcp://127.0.0.1:1, other:8786", "tls://{address}"]
)
@pytest.mark.parametrize("kind", ["address", "scheduler_file"])
def test_others_are_refused_before_a_connection(
    allowed: str,
    kind: str,
    stranger: socket.socket,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address = "{}:{}".format(*stranger.getsockname())
    monkeypatch.setenv(ALLOWED, allowed.format(address=address))
    (tmp_path / "s.json").write_text(json.dumps({"address": f"tcp://{address}"}))
    place = str(tmp_path / "s.json") if kind == "scheduler_file" else address
    with pytest.raises(UserError, match=rf"{address} is not among those of {ALLOWED}="):
        join(ClusterConfig(kind=kind, **{kind: place}))
    with pytest.raises(BlockingIOError):
        stranger.accept()


@pytest.mark.parametrize("allowed", [None, "host:8786", "other:8786, tcp://host:8786"])
def test_those_that_are_named_are_joined(
    allowed: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ALLOWED, raising=False)
    if allowed is not None:
        monkeypatch.setenv(ALLOWED, allowed)
    for address in ("host:8786", "tcp://host:8786"):
        _check_allowed(address)
