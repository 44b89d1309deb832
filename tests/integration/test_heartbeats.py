"""Workers that are frozen, not dead: the user is told, and their work goes to others."""

import os
import signal
import time
from contextlib import suppress

import pytest

from bigsvm.cluster import start as cluster_start
from bigsvm.cluster import workers as worker_module
from bigsvm.cluster.workers import Heartbeats
from bigsvm.config import ClusterConfig

pytestmark = pytest.mark.cluster


def test_silence_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, said = [100.0], list[str]()
    monkeypatch.setattr(worker_module.time, "monotonic", lambda: clock[0])
    beats = {"frozen": 1.0, "busy": 1.0, "idle and frozen": 1.0}
    watch = Heartbeats(lambda: dict(beats), said.append)
    for _ in range(60):
        clock[0] += 1
        beats["busy"] += 1
        watch.check({"frozen", "busy"})
    assert len(said) == 1
    assert said[0].startswith("waiting for the worker at frozen, silent for 20 s; ")


def test_a_frozen_worker_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_start, "_WORKER_TTL", "12s")  # of a minute
    monkeypatch.setattr(worker_module, "_SILENT_SECONDS", 2.0)
    monkeypatch.setattr(worker_module, "_CHECK_SECONDS", 0.5)
    said = list[str]()
    config = ClusterConfig(kind="local", workers=2)
    with cluster_start.connect(config, said.append, lambda: False) as workers:
        assert workers is not None
        workers.check_workers(lambda seen: None, os.getpid)
        frozen, other = workers.workers()
        (pid,) = workers.compute(os.getpid, [(frozen, ())]) or []
        os.kill(pid, signal.SIGSTOP)
        try:
            began = time.monotonic()
            calls = [(frozen, ()), (other, ())]
            while (found := workers.compute(os.getpid, calls)) is None:
                assert time.monotonic() < began + 240
            assert pid not in found and len(set(found)) == 1
        finally:
            with suppress(ProcessLookupError):  # its nanny may have ended it
                os.kill(pid, signal.SIGCONT)
    assert any(f"waiting for the worker at {frozen}" in line for line in said)
