"""Damaged and made-up files of every format: read, or refused in one line; never a crash or a hang.

BIGSVM_FUZZ=20000 tries that many files of each kind instead of the few of the suite.
"""

import bz2
import gzip
import io
import lzma
import os
import resource
import signal
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bigsvm.config.file import load_config
from bigsvm.core.errors import UserError
from bigsvm.core.scaling import Scaling
from bigsvm.files.checked_tensors import read_tensors, write_tensors
from bigsvm.models.model import Model, load_model
from bigsvm.readers import ReadOptions, open_reader
from tests.support.bad_files import CSV, config, npy, npz, zipped

MOST_SECONDS = 60  # a file of a kilobyte takes milliseconds: this is for a machine that is busy
MOST_BYTES = 2**30
EXAMPLES = int(os.environ.get("BIGSVM_FUZZ", "30"))
fuzzed = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

LIBSVM = "".join(f"{k % 2} 1:{k} 3:{k / 7:.3g} # {k}\n" for k in range(30))
MINIBOONE = "3 4\n" + "  1.5 2e-3 -7\n" * 7
WORDS = [
    *(b"nan", b"-inf", b"1e999", b"", b'"', b",", b"\r\n", b"\0", b":", b"1:", b"0:1", b"#"),
    *(b"99999999999999999999:1", b"\xff\xfe", b"\xef\xbb\xbf", b"9" * 400, b"?", b"[", b"{a: "),
    *(b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\xff\xff\xff\xff", b"\0" * 8, b"!!", b"&a ", b"*a"),
]


def parquet() -> bytes:
    file = io.BytesIO()
    numbers = np.arange(30.0)
    table = pa.table({"a": numbers, "b": numbers.astype(int) % 3, "y": ["u", "v"] * 15})
    pq.write_table(table, file)
    return file.getvalue()


ROWS = np.random.default_rng(0).normal(size=(9, 3))
ROWS[:, 2] = np.arange(9) % 2
FILES: dict[str, bytes] = {
    "f.csv": CSV.encode(),
    "f.tsv": CSV.replace(",", "\t").encode(),
    "f.libsvm": LIBSVM.encode(),
    "f.txt": MINIBOONE.encode(),
    "f.csv.gz": gzip.compress(CSV.encode(), mtime=0),
    "f.csv.bz2": bz2.compress(CSV.encode()),
    "f.csv.xz": lzma.compress(CSV.encode()),
    "f.csv.zip": zipped({"a.csv": CSV}),
    "f.npy": npy(ROWS),
    "f.npz": npz(X=ROWS, y=np.arange(9) % 2),
    "f.parquet": parquet(),
}


@contextmanager
def bounded() -> Iterator[None]:
    """Neither much time nor much memory may be needed inside."""

    def too_long(number: int, frame: object) -> None:
        raise TimeoutError(f"more than {MOST_SECONDS} s")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(MOST_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert peak < STARTED_WITH + MOST_BYTES


STARTED_WITH = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def is_refused(path: Path, use: Callable[[Path], None]) -> bool:
    """Use a file; whether it was refused."""
    with bounded():
        try:
            use(path)
        except UserError as refusal:
            assert path.name in str(refusal)
            assert "\n" not in str(refusal)
            return True
    return False


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """A file with a few of its bytes changed, taken out, put in or said twice."""
    content = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(content)))
        match draw(st.sampled_from(["flip", "put", "cut", "twice", "end", "number"])):
            case "flip" if at < len(content):
                content[at] ^= 1 << draw(st.integers(0, 7))
            case "put":
                content[at:at] = draw(st.sampled_from(WORDS) | st.binary(max_size=6))
            case "cut":
                del content[at : at + draw(st.integers(1, 40))]
            case "twice":
                content[at:at] = content[at : at + draw(st.integers(1, 200))]
            case "number":
                content[at : at + 4] = draw(st.integers(0, 2**32 - 1)).to_bytes(4, "little")
            case "end":
                del content[max(at, 1) :]
    return bytes(content)


def read_all(path: Path) -> None:
    reader = open_reader(path, ReadOptions())
    for batch in reader.batches():
        assert np.isfinite(batch.x).all()
        assert batch.x.shape[1] == reader.d
        assert len(batch.y) == len(batch.x)


@pytest.mark.parametrize("name", FILES)
def test_damaged_files_of_rows(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(FILES[name])
    assert not is_refused(path, read_all)

    @fuzzed
    @given(damaged(FILES[name]))
    def try_one(content: bytes) -> None:
        path.write_bytes(content)
        is_refused(path, read_all)

    try_one()


@fuzzed
@given(
    st.sampled_from(sorted(FILES)),
    st.binary(max_size=200) | st.lists(st.sampled_from(WORDS)).map(b" ".join),
)
def test_any_bytes_under_any_name(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    is_refused(path, read_all)


@fuzzed
@given(st.lists(st.sampled_from([*'0123456789+-.eE,;\t :#"\n\r?', "1", "nan", "\n", "a"])))
def test_any_text_under_any_name(tmp_path: Path, characters: list[str]) -> None:
    for name in ("t.csv", "t.tsv", "t.libsvm", "t.txt"):
        (tmp_path / name).write_text("".join(characters), newline="")
        is_refused(tmp_path / name, read_all)


@fuzzed
@given(damaged(config().encode()))
def test_damaged_configs(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(content)
    is_refused(path, lambda path: load_config(path) and None)


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("model") / "m.safetensors"
    Model(
        np.ones((4, 3), np.float32), np.arange(4.0), np.arange(4),
        {"name": "rbf", "gamma": 0.5, "coef0": 0.0, "degree": 3}, ("no", "yes"),
        Scaling("standard", np.zeros(3), np.ones(3)), {"iteration": 5},
    ).save(path)  # fmt: skip
    return path.read_bytes()


def use_model(path: Path) -> None:
    decision = load_model(path).decision_function(np.ones((2, 3)))
    assert np.isfinite(decision).all()


def test_damaged_models(sealed: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(sealed)
    assert not is_refused(path, use_model)

    @fuzzed
    @given(damaged(sealed))
    def try_one(content: bytes) -> None:
        path.write_bytes(content)
        is_refused(path, use_model)

    try_one()


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "gamma", "kind", "clip"]), inner, max_size=3)
    ),
)


def test_models_that_are_sealed_by_a_stranger(sealed: bytes, tmp_path: Path) -> None:
    """The checksum is no secret: anyone can put one on anything."""
    path = tmp_path / "m.safetensors"
    path.write_bytes(sealed)
    arrays, about = read_tensors(path)
    kernels = st.fixed_dictionaries(
        {"name": st.sampled_from(["rbf", "poly", "linear"])},
        optional={"gamma": anything, "coef0": anything, "degree": anything},
    )
    scalings = st.fixed_dictionaries(
        {"kind": st.just("standard"), "offset": anything, "scale": anything, "clip": anything}
    )
    changes = st.dictionaries(st.sampled_from(sorted(about)), anything | kernels | scalings)
    values = st.lists(st.floats(), max_size=5).map(np.array)

    @fuzzed
    @given(changes, st.dictionaries(st.sampled_from(sorted(arrays)), values, max_size=1))
    def try_one(said: dict[str, object], held: dict[str, np.ndarray]) -> None:
        write_tensors(path, arrays | held, about | said | {"format": about["format"]})
        is_refused(path, use_model)

    try_one()


def test_a_zip_bomb_is_read_in_pieces(tmp_path: Path) -> None:
    """256 MiB of blanks in a small zip: refused at the length of its first line."""
    path = tmp_path / "bomb.csv.zip"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("bomb.csv", "w") as member,
    ):
        for _ in range(256):
            member.write(b" " * 2**20)
    assert is_refused(path, read_all)
