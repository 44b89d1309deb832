"""A config from a stranger may name a Dask scheduler, whose answers are unpickled."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bigsvm import cli, train
from bigsvm.cluster import start
from bigsvm.cluster.start import ALLOWED, _check_allowed, connect
from bigsvm.config import ClusterConfig
from bigsvm.config.file import load_config
from bigsvm.core.errors import UserError
from tests.support.trainings import HANGS


@pytest.fixture
def stranger() -> Iterator[socket.socket]:
    """A scheduler that notices connections."""
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


@pytest.mark.parametrize("allowed", [None, "host.net:8786", "other:8786, tcp://host.net:8786"])
def test_those_that_are_named_are_joined(
    allowed: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ALLOWED, raising=False)
    if allowed is not None:
        monkeypatch.setenv(ALLOWED, allowed)
    for address in ("host.net:8786", "tcp://host.net:8786"):
        _check_allowed(address, ClusterConfig(kind="address", address=address))


OUTSIDE = ["8.8.8.8", "134744072", "0x08080808", "010.8.8.8", "[::ffff:8.8.8.8]"]
OUTSIDE += ["[2001:4860::8888]", "host.net", "host.net.", "host\u3002net", "127.0.0.1@host.net"]


def in_file(folder: Path, kind: str, place: str, *settings: str) -> ClusterConfig:
    """The cluster of a config file that names this scheduler."""
    values = {
        "data": {"train": "a.zarr"},
        "model": {"kernel": {"name": "linear"}},
        "cluster": {"kind": kind, kind: place},
    }
    (folder / "c.yaml").write_text(json.dumps(values))
    return load_config(folder / "c.yaml", settings).cluster


@pytest.mark.parametrize("host", OUTSIDE)
def test_a_file_may_not_name_a_scheduler_outside(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ALLOWED, raising=False)
    address = f"tcp://{host}:8786"
    config = in_file(tmp_path, "address", address)
    with pytest.raises(UserError, match=r"add --set cluster\.address="):
        _check_allowed(address, config)
    (tmp_path / "s.json").write_text(json.dumps({"address": address}))
    with pytest.raises(UserError, match=r"add --set cluster\.scheduler_file="):
        join(in_file(tmp_path, "scheduler_file", str(tmp_path / "s.json")))
    _check_allowed(address, in_file(tmp_path, "address", address, f"cluster.address='{address}'"))
    monkeypatch.setenv(ALLOWED, address)
    _check_allowed(address, config)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "10.1.2.3", "192.168.0.9", "172.16.5.5", "[::1]", "[fd00::1]", "node-17"]
)
def test_a_file_may_name_one_inside(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ALLOWED, raising=False)
    for address in (f"tcp://{host}:8786", f"tls://{host}:8786", f"{host}:8786"):
        _check_allowed(address, in_file(tmp_path, "address", address))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"", "does not answer within 1 s"),
        (b"HTTP/1.1 400 Bad Request\r\n", "speaks another protocol"),
    ],
)
def test_what_is_no_scheduler_is_refused_in_time(
    answer: bytes,
    words: str,
    stranger: socket.socket,
    config: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    """Dask's own client waits for ever for one that accepts a connection and says nothing."""
    monkeypatch.setattr(start, "_CONNECT_SECONDS", 1.0)
    address = "tcp://{}:{}".format(*stranger.getsockname())
    stranger.settimeout(HANGS)
    done, began = threading.Event(), time.monotonic()

    def speak() -> None:
        with stranger.accept()[0] as connection:
            connection.sendall(answer)
            done.wait(HANGS)

    speaker = threading.Thread(target=speak)
    speaker.start()
    values = (f"cluster.address={address}", "cluster.kind=address")
    options = [word for value in values for word in ("--set", value)]
    assert cli.run(train.main, [str(config), "--run-dir", str(tmp_path / "run"), *options]) == 2
    assert time.monotonic() - began < HANGS / 2
    done.set()
    speaker.join()
    (line,) = capsys.readouterr().err.splitlines()
    assert f"error: cluster.address = {address}: no Dask scheduler answers there (" in line
    assert words in line
