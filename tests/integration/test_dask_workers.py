"""Workers that do not fit are found before they do harm; and strangers cannot join the traffic."""

import datetime
import ipaddress
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from distributed import Security

from bigsvm.backends import worker
from bigsvm.backends.dask import DaskBackend
from bigsvm.backends.local import LocalBackend
from bigsvm.cluster import start as cluster_start
from bigsvm.cluster.start import connect
from bigsvm.config import ClusterConfig
from bigsvm.core.errors import UserError
from bigsvm.kernels import Kernel
from bigsvm.stores.fingerprint import verified_fingerprint
from bigsvm.stores.store import open_dataset
from tests.support.clusters import Processes, another_version, until
from tests.support.trainings import Train, final, one_line, summary

pytestmark = pytest.mark.cluster

KERNEL = Kernel("rbf", 0.5)


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    processes = Processes(tmp_path_factory.mktemp("cluster"))
    yield processes
    processes.close()


@pytest.fixture
def store(
    stores: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """A store whose path leads elsewhere for a process in another folder."""
    (tmp_path / "here").mkdir()
    (tmp_path / "elsewhere").mkdir()
    shutil.copytree(stores["chunks of 1000"], tmp_path / "here" / "store.zarr")
    monkeypatch.chdir(tmp_path / "here")
    yield "/proc/self/cwd/store.zarr"


def another_numpy(folder: Path) -> None:
    (folder / "sitecustomize.py").write_text("import numpy\nnumpy.__version__ += '+other'\n")


def no_bigsvm(folder: Path) -> None:
    (folder / "bigsvm").mkdir()
    (folder / "bigsvm" / "__init__.py").write_text("raise ImportError('bigsvm is broken here')")


def same_path_other_store(folder: Path, stores: dict[str, Path]) -> None:
    shutil.copytree(stores["other data"], folder / "store.zarr")


@pytest.mark.parametrize(
    "make, said",
    [
        (another_version, "has bigsvm 9."),
        (another_numpy, "+other, and the trainer has "),
        (no_bigsvm, "cannot run this bigsvm (ImportError('bigsvm is broken here'))"),
        (None, "cannot see the store (/proc/self/cwd/store.zarr: there is no such store"),
        (same_path_other_store, "sees another store at /proc/self/cwd/store.zarr"),
    ],
)
def test_an_unfit_worker_is_refused_at_the_start(
    make: Any, said: str, processes: Processes, store: str, stores: dict[str, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "elsewhere"
    if make is same_path_other_store:
        make(folder, stores)
    elif make is not None:
        make(folder)
    if make in (another_version, another_numpy, no_bigsvm):
        processes.start_worker("unfit", cwd=tmp_path / "here", path=folder)
    else:
        processes.start_worker("unfit", cwd=folder)
    config = ClusterConfig(kind="address", address=processes.address)
    try:
        with (
            open_dataset(store) as dataset,
            connect(config, print, lambda: False) as cluster,
            pytest.raises(UserError) as refusal,
        ):
            assert cluster is not None
            DaskBackend(dataset, store, KERNEL, cluster, 2**30)
        message = str(refusal.value)
        assert message.startswith("the worker at tcp://127.0.0.1:")
        assert said in message
        assert "\n" not in message
    finally:
        processes.kill(processes.workers["unfit"])
        until(lambda: "unfit" not in processes.addresses())


def test_an_unfit_worker_that_comes_later_is_left_out(
    processes: Processes, store: str, tmp_path: Path
) -> None:
    heard: list[str] = []
    config = ClusterConfig(kind="address", address=processes.address)
    processes.start_worker("fit", cwd=tmp_path / "here")
    try:
        with (
            open_dataset(store) as dataset,
            connect(config, heard.append, lambda: False) as cluster,
        ):
            assert cluster is not None
            backend = DaskBackend(dataset, store, KERNEL, cluster, 2**30)
            rows, coef = dataset.read(0, 30), np.linspace(-1, 1, 30)
            sums = LocalBackend(dataset, KERNEL, 2**30).matvec(rows, coef)
            assert backend.matvec(rows, coef).tobytes() == sums.tobytes()
            processes.start_worker("unfit", cwd=tmp_path / "elsewhere")
            address = until(lambda: processes.addresses().get("unfit"))
            assert backend.matvec(rows, coef).tobytes() == sums.tobytes()
            said = [line for line in heard if "left out" in line]
            assert len(said) == 1
            assert f"the worker at {address} cannot see the store" in said[0]
    finally:
        for name in ("fit", "unfit"):
            processes.kill(processes.workers[name])


@pytest.mark.parametrize("start, stop", [(1000, 3000), (16, 2992)])  # cut as chunks are, and not
def test_a_worker_takes_no_other_rows_than_the_trainer_saw(
    start: int, stop: int, stores: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_kept", None)
    path = tmp_path / "store.zarr"
    shutil.copytree(stores["chunks of 1000"], path)
    with open_dataset(path) as dataset:
        verified_fingerprint(dataset)
        seen, rows = worker.probe(path), dataset.read(0, 3)
    shard = worker.RowShard(path, seen, dataset.checksums, KERNEL, start, stop, 2**30, 1)
    _, sums = worker.matvec(shard, rows, np.ones(3))
    with open_dataset(path) as dataset:
        expected = LocalBackend(dataset, KERNEL, 2**30).matvec(rows, np.ones(3))
    assert sums.tobytes() == expected[start:stop].tobytes()
    monkeypatch.setattr(worker, "_kept", None)
    x: Any = zarr.open_group(path, mode="r+")["train/X"]
    x[2500, 3] += 1  # neither the first nor the last row, at which `look` looks
    with pytest.raises(UserError, match="rows 2000 to 3000 are not what they were"):
        worker.matvec(shard, rows, np.ones(3))
    assert worker._kept is None


def test_the_command_refuses_in_one_line(
    train: Train, processes: Processes, store: str, tmp_path: Path
) -> None:
    processes.start_worker("unfit", cwd=tmp_path / "elsewhere")
    where = ("cluster.kind=address", f"cluster.address={processes.address}")
    done = train(tmp_path / "run", f"data.train={store}", *where, code=2)
    processes.kill(processes.workers["unfit"])
    lines = [line for line in done.stderr.splitlines() if not line.startswith("waiting")]
    assert len(lines) == 1
    assert lines[0].startswith("error: the worker at tcp://127.0.0.1:")
    assert not list((tmp_path / "run").rglob("checkpoint-*"))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A key, and a certificate for this machine signed with it, made just now."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bigsvm test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(made.public_bytes(pem))
    (folder / "key.pem").touch(mode=0o600)
    (folder / "key.pem").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    cert = str(folder / "cert.pem")
    return {"ca": cert, "cert": cert, "key": str(folder / "key.pem")}


def test_tls(certificate: dict[str, str], train: Train, straight: Path, tmp_path: Path) -> None:
    options = [("--tls-ca-file", certificate["ca"])]
    options += [(f"--tls-{part}", certificate[part]) for part in ("cert", "key")]
    security = Security(
        require_encryption=True,
        tls_ca_file=certificate["ca"],
        tls_client_cert=certificate["cert"],
        tls_client_key=certificate["key"],
    )
    processes = Processes(
        tmp_path / "cluster", *(word for pair in options for word in pair), security=security
    )
    try:
        processes.start_worker("one")
        assert processes.address.startswith("tls://")
        few = ("solver.max_iterations=300", "cluster.kind=address")
        keys = [f"cluster.tls_{part}={path}" for part, path in certificate.items()]
        train(tmp_path / "run", *few, f"cluster.address={processes.address}", *keys)
        assert (
            final(tmp_path / "run")
            == (straight / "snapshots" / "model-00000300.safetensors").read_bytes()
        )
        assert summary(tmp_path / "run")["overhead_seconds_a_pass"] > 0
        driver, *workers = summary(tmp_path / "run")["shares"].values()
        assert 0 < driver < 1 and workers and all(0 < share < 1 for share in workers)
        plain = processes.address.replace("tls://", "tcp://")
        refusal = one_line(train(tmp_path / "no", *few, f"cluster.address={plain}", code=2))
        assert "no Dask scheduler answers there" in refusal
    finally:
        processes.close()


def test_a_scheduler_file_that_is_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "scheduler.json"
    path.write_text('{"id": "Scheduler-1", "addr')
    whole = json.dumps({"id": "Scheduler-1", "address": "tcp://10.0.0.1:8786"})
    rest = threading.Timer(0.2, path.write_text, [whole])
    rest.start()
    assert (
        cluster_start._read_scheduler_file(path, 10.0, print, lambda: False)
        == "tcp://10.0.0.1:8786"
    )
    rest.join()
    monkeypatch.setattr(cluster_start, "_WRITING_SECONDS", 0.0)
    path.write_text("[]")
    with pytest.raises(UserError, match="is not what a Dask scheduler writes"):
        cluster_start._read_scheduler_file(path, 10.0, print, lambda: False)


@pytest.mark.parametrize(
    "settings, said",
    [
        (["cluster.kind=address"], "cluster: kind address needs the key 'address'"),
        (["cluster.kind=scheduler_file"], "needs the key 'scheduler_file'"),
        (["cluster.tls_ca=ca.pem"], "TLS needs all of tls_ca, tls_cert and tls_key"),
        (
            ["cluster.kind=local", *(f"cluster.tls_{x}=/no.pem" for x in ("ca", "cert", "key"))],
            "cluster.tls_ca = /no.pem: there is no such file",
        ),
        (
            [
                "cluster.kind=scheduler_file",
                "cluster.scheduler_file=/nonexistent/s.json",
                "cluster.wait_limit=0s",
            ],
            "cluster.scheduler_file = /nonexistent/s.json: there is no such file",
        ),
    ],
)
def test_mistakes_in_the_config(
    settings: list[str], said: str, train: Train, tmp_path: Path
) -> None:
    done = train(tmp_path / "run", *settings, code=2)
    assert said in done.stderr.splitlines()[-1]
