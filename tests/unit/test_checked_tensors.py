"""Sealed files: the same content, or a clear refusal, whatever happens to the bytes."""

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from bigsvm.core.errors import UserError
from bigsvm.files.checked_tensors import _checksum, read_tensors, write_tensors
from bigsvm.models.model import FORMAT, load_model

ABOUT = {"format": "test", "gap": 0.1, "nested": {"é": [1, None, "x"]}, "text": "{}\n\0\u2028"}


def content() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "alpha": rng.normal(size=17),
        "rows": rng.normal(size=(5, 3)).astype(np.float32),
        "index": np.array([0, 2**62, -5], np.int64),
        "role": rng.integers(-1, 2, size=11).astype(np.int8),
        "special": np.array([np.nan, -0.0, np.inf, 5e-324]),
    }


def same(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> bool:
    return left.keys() == right.keys() and all(
        left[name].dtype == right[name].dtype
        and left[name].shape == right[name].shape
        and left[name].tobytes() == right[name].tobytes()
        for name in left
    )


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    path = tmp_path / "some.safetensors"
    write_tensors(path, content(), ABOUT)
    return path


def test_round_trip(sealed: Path) -> None:
    arrays, about = read_tensors(sealed)
    assert same(arrays, content())
    assert about == ABOUT
    assert [path.name for path in sealed.parent.iterdir()] == [sealed.name]


@pytest.mark.parametrize("shape", [(0,), (0, 7), (4, 0)])
def test_arrays_without_content(tmp_path: Path, shape: tuple[int, ...]) -> None:
    arrays = {"empty": np.empty(shape, np.float32), "other": np.arange(3)}
    write_tensors(tmp_path / "e", arrays, {})
    assert same(read_tensors(tmp_path / "e")[0], arrays)


def test_a_view_of_an_array(tmp_path: Path) -> None:
    whole = np.arange(24.0).reshape(4, 6)
    write_tensors(tmp_path / "v", {"view": whole[::2, 1::2]}, {})
    assert (read_tensors(tmp_path / "v")[0]["view"] == whole[::2, 1::2]).all()


def test_safetensors_itself_reads_it(sealed: Path) -> None:
    with safe_open(sealed, framework="numpy") as file:
        assert same({name: file.get_tensor(name) for name in file.keys()}, content())  # noqa: SIM118
        assert json.loads(file.metadata()["about"]) == ABOUT
    header = int.from_bytes(sealed.read_bytes()[:8], "little")
    assert header % 8 == 0, "arrays are to be aligned"


def test_same_content_same_bytes(sealed: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    arrays = dict(reversed(content().items()))
    write_tensors(other, arrays, dict(reversed(ABOUT.items())))
    assert other.read_bytes() == sealed.read_bytes()
    write_tensors(other, arrays | {"role": arrays["role"] + 1}, ABOUT)
    assert other.read_bytes() != sealed.read_bytes()


def refused_or_identical(path: Path) -> bool:
    """Read a changed file; whether it was refused."""
    try:
        arrays, about = read_tensors(path)
    except UserError as refusal:
        assert str(path) in str(refusal)
        assert "\n" not in str(refusal)
        return True
    assert same(arrays, content())
    assert about == ABOUT
    return False


def test_a_flipped_bit_is_noticed(sealed: Path) -> None:
    whole = sealed.read_bytes()
    rng = np.random.default_rng(1)
    refused = 0
    places = rng.choice(8 * len(whole), size=1500, replace=False)
    for place in places.tolist():
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << place % 8
        sealed.write_bytes(damaged)
        refused += refused_or_identical(sealed)
    assert refused > 0.95 * len(places)


def test_a_file_cut_short_is_noticed(sealed: Path) -> None:
    whole = sealed.read_bytes()
    for length in range(len(whole)):
        sealed.write_bytes(whole[:length])
        assert refused_or_identical(sealed)
    for more in (b"\0", whole):
        sealed.write_bytes(whole + more)
        assert refused_or_identical(sealed)
    sealed.write_bytes(whole)
    assert not refused_or_identical(sealed)


def test_a_zeroed_block_is_noticed(sealed: Path) -> None:
    whole = sealed.read_bytes()
    for start in range(0, len(whole) - 64, 64):
        sealed.write_bytes(whole[:start] + bytes(64) + whole[start + 64 :])
        assert refused_or_identical(sealed)


def raw(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


BF16 = {"w": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}
FLOAT8 = {"w": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [0, 2]}}
HUGE = {"w": {"dtype": "F32", "shape": [2**62, 4], "data_offsets": [0, 0]}}
OVERLAP = {
    name: {"dtype": "U8", "shape": [4], "data_offsets": [begin, begin + 4]}
    for name, begin in (("a", 0), ("b", 2))
}


@pytest.mark.parametrize(
    "foreign",
    [
        b"",
        b"\x80\x04\x95pickle",
        (10 * 2**30).to_bytes(8, "little") + b"{}",
        (2**64 - 1).to_bytes(8, "little") + b"{}",
        raw({}),
        raw([]),
        raw(b"\xff\xfe"),
        raw(b'{"a":' * 50_000),
        raw(BF16, bytes(4)),
        raw(FLOAT8, bytes(2)),
        raw(HUGE),
        raw(OVERLAP, bytes(6)),
        raw({"__metadata__": {"about": "{}"}}),
        raw({"__metadata__": {"about": 5, "checksum": 6}}),
        raw({"w": {"dtype": "F32", "shape": [1000], "data_offsets": [0, 4000]}}, bytes(4)),
    ],
    ids=range(15),
)
def test_files_of_others(tmp_path: Path, foreign: bytes) -> None:
    path = tmp_path / "foreign.safetensors"
    path.write_bytes(foreign)
    with pytest.raises(UserError, match=r"foreign\.safetensors") as caught:
        read_tensors(path)
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match=r"foreign\.safetensors"):
        load_model(path)


def test_a_file_of_safetensors(tmp_path: Path) -> None:
    path = tmp_path / "theirs.safetensors"
    save_file({"w": np.ones(3)}, path)
    with pytest.raises(UserError, match=r"theirs\.safetensors: .* not a file of bigsvm"):
        read_tensors(path)


@pytest.mark.parametrize(
    "description", ["[1, 2]", "[" * 100_000, "no JSON", "1" * 5000, '"text"', "null"]
)
def test_a_description_that_makes_no_sense(tmp_path: Path, description: str) -> None:
    arrays = {"a": np.zeros(3)}
    metadata = {"about": description, "checksum": _checksum(description, arrays)}
    save_file(arrays, tmp_path / "f", metadata)
    for read in (read_tensors, load_model):
        with pytest.raises(UserError, match="its description") as refusal:
            read(tmp_path / "f")
        assert str(tmp_path / "f") in str(refusal.value)
        assert "\n" not in str(refusal.value)


def test_a_file_that_cannot_be_opened_now_is_not_a_damaged_one(sealed: Path) -> None:
    read_tensors(sealed)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            read_tensors(sealed)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="none: there is no such file"):
        read_tensors(tmp_path / "none")
    with pytest.raises(UserError, match=str(tmp_path)):
        read_tensors(tmp_path)


MODEL_ARRAYS = {
    "support_vectors": np.ones((3, 2), np.float32),
    "dual_coef": np.ones(3),
    "support_index": np.arange(3),
}
MODEL_ABOUT = {
    "format": FORMAT,
    "kernel": {"name": "rbf", "gamma": 1.0, "coef0": 0.0, "degree": 3},
    "classes": [-1, 1],
    "scaling": None,
    "about": {},
}


@pytest.mark.parametrize(
    ("arrays", "about"),
    [
        ({}, {"format": "something else"}),
        ({"dual_coef": np.ones(2)}, {}),
        ({"dual_coef": None}, {}),
        ({"support_vectors": np.ones(3, np.float32)}, {}),
        ({}, {"kernel": None}),
        ({}, {"kernel": {"name": "exec"}}),
        ({}, {"kernel": {"name": "poly", "degree": 10**12}}),
        ({}, {"kernel": {"name": "poly", "degree": 2.5}}),
        ({"support_vectors": np.empty((3, 0), np.float32)}, {}),
        ({}, {"classes": [1]}),
        ({}, {"scaling": {"kind": "standard"}}),
        ({}, {"about": None}),
    ],
    ids=range(12),
)
def test_a_sealed_stranger_is_no_model(
    tmp_path: Path, arrays: dict[str, Any], about: dict[str, Any]
) -> None:
    """The seal says that a file is whole, not that it makes sense: anyone can make one."""
    path = tmp_path / "stranger.safetensors"
    wrong = {name: array for name, array in (MODEL_ARRAYS | arrays).items() if array is not None}
    write_tensors(path, wrong, MODEL_ABOUT | about)
    with pytest.raises(UserError, match=r"stranger\.safetensors"):
        load_model(path)


def test_what_the_stranger_is_made_of_is_a_model(tmp_path: Path) -> None:
    write_tensors(tmp_path / "m", MODEL_ARRAYS, MODEL_ABOUT)
    assert load_model(tmp_path / "m").predict(np.ones((2, 2))).tolist() == [1, 1]


WRITER = """
import sys
from pathlib import Path
import numpy as np
from bigsvm.files.checked_tensors import write_tensors
write_tensors(Path(sys.argv[1]), {"big": np.full(int(sys.argv[2]), 2.0)}, {})
"""


def write_elsewhere(path: Path, values: int, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WRITER, str(path), str(values)]
    return subprocess.run(command, capture_output=True, text=True, **options)


def test_whole_or_not_at_all_where_files_may_not_be_large(tmp_path: Path) -> None:
    path = tmp_path / "big"
    write_tensors(path, {"old": np.ones(1)}, {})
    before = path.read_bytes()

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    done = write_elsewhere(path, 100_000, preexec_fn=small_files)
    assert done.returncode == 1
    assert "File too large" in done.stderr
    assert path.read_bytes() == before
    assert [left.name for left in tmp_path.iterdir()] == ["big"]
    assert write_elsewhere(path, 100, preexec_fn=small_files).returncode == 0
    assert read_tensors(path)[0]["big"].shape == (100,)


def test_whole_or_not_at_all_on_a_full_disk(small_disk: Path) -> None:
    path = small_disk / "big"
    write_tensors(path, {"big": np.ones(20_000)}, {})
    before = path.read_bytes()
    with pytest.raises(OSError, match="No space left on device") as caught:
        write_tensors(path, {"big": np.full(50_000, 2.0)}, {})
    assert caught.value.filename == str(path)
    assert path.read_bytes() == before
    assert [left.name for left in small_disk.iterdir()] == ["big"]
