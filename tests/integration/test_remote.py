"""Stores at an address: a real S3 server on loopback, well and badly behaved."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import zarr

from bigsvm.config.file import load_config
from bigsvm.core.errors import UserError
from bigsvm.core.urls import reject_credentials
from bigsvm.stores.fingerprint import verified_fingerprint
from bigsvm.stores.store import open_dataset
from tests.support.s3_server import BUCKET, STRANGER, S3Server
from tests.support.small_run import make_store
from tests.support.trainings import command, environment, final, one_line, run_quickly, summary

Run = Callable[..., "subprocess.CompletedProcess[str]"]
STORE = f"s3://{BUCKET}/store.zarr"


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Training and test rows in ten chunks."""
    return make_store(tmp_path_factory.mktemp("remote") / "store.zarr")


@pytest.fixture(scope="session")
def server(store: Path) -> Iterator[S3Server]:
    server = S3Server()
    try:
        server.upload(store, "store.zarr")
        yield server
    finally:
        server.close()


@pytest.fixture
def well_behaved(server: S3Server) -> S3Server:
    server.misbehave("", 0)
    return server


@pytest.fixture(scope="session")
def config_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "remote.yaml"
    path.write_text(
        f"data: {{train: {STORE}, test: {STORE}/test}}\n"
        "model: {C: 10, kernel: {name: rbf, sigma: 1.0}}\n"
        "solver: {schedule: block, hot_set: 32, max_iterations: 300, threads: 1}\n"
    )
    return path


@pytest.fixture
def run(server: S3Server) -> Run:
    """Run a command to its end, with the server's variables in its environment."""

    def run(command: list[str], code: int = 0, **given: str) -> "subprocess.CompletedProcess[str]":
        mine = {k: v for k, v in environment().items() if not k.startswith("AWS_")}
        variables = {**mine, **server.environment(), **given}
        variables = {name: value for name, value in variables.items() if value}
        if "PYTHONPATH" in given:  # which a forked process would not see
            done = subprocess.run(command, capture_output=True, text=True, env=variables)
        else:
            done = run_quickly(command, variables)
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == code, done.stderr
        return done

    return run


def module(name: str, *arguments: object) -> list[str]:
    return [sys.executable, "-m", name, *map(str, arguments)]


@pytest.fixture(scope="session")
def local_run(config_file: Path, store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("runs") / "local"
    places = (f"data.train={store}", f"data.test={store}/test")
    done = run_quickly(command(config_file, run_dir, *places), environment())
    assert done.returncode == 0, done.stderr
    return run_dir


def test_the_same_model_as_from_the_local_store(
    run: Run,
    well_behaved: S3Server,
    config_file: Path,
    local_run: Path,
    store: Path,
    tmp_path: Path,
) -> None:
    done = run(command(config_file, tmp_path / "run"))
    assert final(tmp_path / "run") == final(local_run)
    assert summary(tmp_path / "run")["accuracy"] == summary(local_run)["accuracy"]
    run(module("bigsvm.evaluate", tmp_path / "run"))
    run(module("bigsvm.evaluate", local_run))
    evaluated = [
        (folder / "evaluation.csv").read_text() for folder in (tmp_path / "run", local_run)
    ]
    assert evaluated[0] == evaluated[1]
    model = local_run / "model.safetensors"
    for source, out in ((f"{STORE}/test", "there.csv"), (store / "test", "here.csv")):
        run(module("bigsvm.predict", model, source, tmp_path / out))
    assert (tmp_path / "there.csv").read_bytes() == (tmp_path / "here.csv").read_bytes()
    code = (
        "import sys, bigsvm\n"
        "model = bigsvm.BigSVC(C=10).fit(sys.argv[1])\n"
        "print(model.dual_coef_.tobytes().hex(), model.score(sys.argv[1]))\n"
    )
    fits = [run([sys.executable, "-c", code, str(place)]).stdout for place in (STORE, store)]
    assert fits[0] == fits[1]
    said = done.stdout + done.stderr
    for file in (tmp_path / "run").rglob("*"):
        said += file.read_bytes().decode("latin-1") if file.is_file() else ""
    assert not any(secret in said for secret in well_behaved.credentials.values())


@pytest.mark.parametrize("fault", ["unavailable", "dropped", "cut"])
def test_passing_errors_pass(
    run: Run, server: S3Server, config_file: Path, local_run: Path, tmp_path: Path, fault: str
) -> None:
    server.misbehave(fault, every=5)
    run(command(config_file, tmp_path / "run", "data.test=null"))
    assert server.counts()["faults"] > 5
    assert final(tmp_path / "run") == final(local_run)


def test_chunks_are_asked_for_several_at_once(run: Run, well_behaved: S3Server) -> None:
    code = (
        "from bigsvm.stores.fingerprint import verified_fingerprint\n"
        "from bigsvm.stores.store import open_dataset\n"
        f"print(verified_fingerprint(open_dataset({STORE!r})))"
    )
    run([sys.executable, "-c", code])
    assert well_behaved.counts()["at_once"] > 1


@pytest.mark.parametrize(
    ("setting", "variables", "words"),
    [
        ("data.train=s3://nothing-there/store.zarr", {}, "there is no bucket 'nothing-there'"),
        (f"data.train=s3://{BUCKET}/other.zarr", {}, "other.zarr: there is no Zarr group"),
        ("data.test=s3://nothing-there/t.zarr", {}, "there is no bucket 'nothing-there'"),
        ("run.dir=null", STRANGER, "access was refused (403); check the credentials"),
        ("run.dir=null", dict.fromkeys(STRANGER, ""), "no credentials in the environment"),
        (f"data.train=s3://{BUCKET}/store.h5", {}, "HDF5 is read from local disks only"),
        ("data.train=s4://data/store.zarr", {}, "Protocol not known: s4"),
        ("data.source=synthetic", {}, "the store is created on this machine"),
    ],
)
def test_mistakes_are_told_in_one_line(
    run: Run,
    well_behaved: S3Server,
    config_file: Path,
    tmp_path: Path,
    setting: str,
    variables: dict[str, str],
    words: str,
) -> None:
    done = run(command(config_file, tmp_path / "run", setting), 2, **variables)
    assert words in one_line(done)


def test_a_server_that_stays_away_is_told_in_one_line(
    run: Run, well_behaved: S3Server, config_file: Path, tmp_path: Path
) -> None:
    no_server = {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_MAX_ATTEMPTS": "1"}
    done = run(command(config_file, tmp_path / "run"), 1, **no_server)
    assert "no proper answer in 2 attempts" in one_line(done)


def test_a_missing_extra_is_named(
    run: Run, server: S3Server, config_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "s3fs.py").write_text("raise ImportError('no s3fs here')")
    path = f"{tmp_path}:{environment()['PYTHONPATH']}"
    done = run(command(config_file, tmp_path / "run"), 2, PYTHONPATH=path)
    assert "pip install 'bigsvm[s3]'" in one_line(done)


def test_a_copy_that_is_not_complete_is_refused(
    run: Run, well_behaved: S3Server, store: Path, config_file: Path, tmp_path: Path
) -> None:
    whole = tmp_path / "partly.zarr"
    subprocess.run(["cp", "-r", store, whole], check=True)
    (whole / "train" / "X" / "c" / "3" / "0").unlink()
    well_behaved.upload(whole, "partly.zarr")
    setting = f"data.train=s3://{BUCKET}/partly.zarr"
    done = run(command(config_file, tmp_path / "run", setting), 2)
    assert "row 192" in one_line(done)
    assert "missing" in one_line(done)


def test_chunks_absent_from_arrays_of_ones_own_are_told(
    run: Run, well_behaved: S3Server, config_file: Path, tmp_path: Path
) -> None:
    group = zarr.create_group(tmp_path / "own.zarr")
    x = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    group.create_array("X", data=x, chunks=(20, 3))
    group.create_array("y", data=np.arange(60) % 2)
    (tmp_path / "own.zarr" / "X" / "c" / "1" / "0").unlink()
    well_behaved.upload(tmp_path / "own.zarr", "own.zarr")
    well_behaved.misbehave("unavailable", 5)
    own = f"s3://{BUCKET}/own.zarr"
    told = f"warning: {own}: 1 of 3 chunks of the rows are missing and are read as 0.0"
    done = run(command(config_file, tmp_path / "run", f"data.train={own}", "data.test=null"))
    assert done.stderr.count(told) == 1
    assert run(module("bigsvm.evaluate", tmp_path / "run", "--test", own)).stderr.count(told) == 1


@pytest.mark.parametrize(
    "address",
    [
        "s3://key:hidden@bucket/s.zarr",
        "https://host/s.zarr?X-Signature=hidden",
        "simplecache::https://host/s.zarr?X-Amz-Signature=hidden",
        "filecache::simplecache::https://hidden@host/s.zarr",
        "abfs://container:hidden@account/s.zarr",
        "az://container/s.zarr?sv=1&sig=hidden",
    ],
)
def test_credentials_in_an_address_are_refused_unseen(
    address: str, config_file: Path, tmp_path: Path
) -> None:
    for key in ("train", "test"):
        with pytest.raises(UserError, match="holds credentials") as refusal:
            load_config(config_file, [f"data.{key}={address}"])
        assert "hidden" not in str(refusal.value)
    with pytest.raises(UserError, match="holds credentials"):
        open_dataset(address)


def test_other_addresses(store: Path) -> None:
    import fsspec

    fsspec.filesystem("memory").put(str(store), "/copy.zarr", recursive=True)
    with open_dataset(store) as here, open_dataset("memory://copy.zarr/train") as there:
        assert there.path == "memory://copy.zarr/train"
        assert verified_fingerprint(there) == verified_fingerprint(here)
    with open_dataset(f"file://{store}/test") as test:
        assert test.path == f"{store}/test"


@pytest.mark.parametrize(
    "address",
    [
        "abfs://container@account.dfs.core.windows.net/s.zarr",
        "s3://bucket/a@b/s.zarr",
        "simplecache::s3://bucket/s.zarr",
        "memory://what?/s.zarr",
    ],
)
def test_addresses_without_credentials_are_taken(address: str) -> None:
    reject_credentials(address)
