"""A stranger's Zarr store chooses its codecs; none of them runs what is in it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numcodecs
import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, ZstdCodec
from zarr.codecs import numcodecs as wrapped

from bigsvm.core.errors import UserError
from bigsvm.stores import codecs
from bigsvm.stores.store import open_dataset
from tests.support.bad_files import PICKLE
from tests.support.small_stores import own_arrays
from tests.support.trainings import environment

AS_OBJECTS = {"id": "astype", "encode_dtype": "|O", "decode_dtype": "<f8"}
ROWS = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)


def zarr_2_array(folder: Path, chunk: bytes, **changes: Any) -> None:
    folder.mkdir(parents=True)
    metadata = {"zarr_format": 2, "shape": [12], "chunks": [12], "dtype": "|O", "fill_value": None}
    metadata |= {"order": "C", "filters": None, "compressor": None}
    (folder / ".zarray").write_text(json.dumps(metadata | changes))
    (folder / "0").write_bytes(chunk)


def hostile(path: Path, **changes: Any) -> Path:
    """Arrays of the user's own whose labels, once unpickled, create the file `pwned`."""
    group = zarr.create_group(path, zarr_format=2)
    group.create_array("X", data=ROWS)
    given = {"filters": [{"id": "vlen-utf8"}, {"id": "pickle"}]} | changes
    zarr_2_array(path / "y", PICKLE, **given)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    own_arrays(folder / "good.h5", X=ROWS, y=np.arange(12) % 2)
    done = attempt(folder, "train", config(folder, "good.h5"))
    assert done.returncode == 0, done.stderr
    return folder / "run"


def config(folder: Path, store: str) -> str:
    (folder / "c.yaml").write_text(
        f"data: {{train: {store}}}\nmodel: {{kernel: {{sigma: 1}}}}\n"
        "solver: {max_iterations: 20, threads: 1}\nrun: {dir: run}\n"
    )
    return "c.yaml"


def attempt(folder: Path, command: str, *arguments: object) -> "subprocess.CompletedProcess[str]":
    """With the guard of numcodecs taken away, as a version without it would be."""
    return subprocess.run(
        [sys.executable, "-m", f"bigsvm.{command}", *map(str, arguments)],
        cwd=folder,
        env=environment() | {"NUMCODECS_ALLOW_UNSAFE_PICKLE_DECODE": "1"},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("command", ["train", "tune", "predict", "evaluate", "inspect"])
def test_no_command_unpickles_labels(command: str, tmp_path: Path, model: Path) -> None:
    hostile(tmp_path / "s.zarr")
    arguments: dict[str, tuple[object, ...]] = {
        "train": (config(tmp_path, "s.zarr"),),
        "tune": (config(tmp_path, "s.zarr"),),
        "predict": (model / "model.safetensors", "s.zarr", "out.csv"),
        "evaluate": (model, "--test", tmp_path / "s.zarr"),
        "inspect": ("s.zarr",),
    }
    done = attempt(tmp_path, command, *arguments[command])
    assert not (tmp_path / "pwned").exists(), "the pickle was run"
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1, done.stderr
    assert "s.zarr/y" in done.stderr and "'pickle'" in done.stderr


def test_the_attack_would_work_without_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(numcodecs.pickles, "ALLOW_UNSAFE_PICKLE_DECODE", True, raising=False)
    labels = zarr.open_group(hostile(tmp_path / "s.zarr"), mode="r")["y"]
    with pytest.raises(Exception):  # noqa: B017 - whatever Zarr makes of the result
        labels[:]
    assert Path("pwned").exists()


@pytest.mark.parametrize(
    ("changes", "codec"),
    [
        ({"filters": [{"id": "pickle"}]}, None),  # Zarr itself has no data type for it
        ({"compressor": {"id": "pickle"}, "filters": [{"id": "vlen-bytes"}]}, "pickle"),
        ({"compressor": {"id": "pickle"}, "filters": None, "dtype": "<f8"}, "pickle"),
        ({"filters": [{"id": "vlen-utf8"}, {"id": "json2"}]}, "json2"),
        ({"filters": [{"id": "vlen-utf8"}, {"id": "msgpack2"}]}, "msgpack2"),
        ({"filters": [{"id": "delta", "dtype": "|O"}], "dtype": "<f8"}, None),
        ({"filters": [AS_OBJECTS], "dtype": "<f8"}, "astype"),
    ],
)
def test_other_ways_to_the_same_end(
    tmp_path: Path, changes: dict[str, Any], codec: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(numcodecs.pickles, "ALLOW_UNSAFE_PICKLE_DECODE", True, raising=False)
    with pytest.raises(UserError, match=codec):
        open_dataset(hostile(tmp_path / "s.zarr", **changes))
    assert not Path("pwned").exists()


def test_codecs_inside_shards_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = own_arrays(tmp_path / "s.zarr", y=np.arange(12) % 2)
    group = zarr.open_group(path)
    group.create_array("X", data=ROWS, chunks=(3, 3), shards=(6, 3), compressors=GzipCodec())
    assert open_dataset(path).n == 12
    monkeypatch.setattr(codecs, "CODECS", codecs.CODECS - {"gzip"})
    with pytest.raises(UserError, match=r"s\.zarr/X: .*'gzip'"):
        open_dataset(path)


@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr")
@pytest.mark.filterwarnings("ignore:The data type")
@pytest.mark.parametrize("version", [2, 3])
def test_ordinary_codecs_are_read(version: int, tmp_path: Path) -> None:
    if version == 2:
        compressors = [numcodecs.Zstd(), numcodecs.GZip(), numcodecs.LZ4(), numcodecs.Blosc()]
        filters = [numcodecs.Delta("<f4"), numcodecs.Shuffle(4), numcodecs.AsType("<f4", "<f4")]
    else:
        compressors = [ZstdCodec(), GzipCodec(), BloscCodec(), wrapped.LZ4(), Crc32cCodec()]
        filters = [wrapped.Delta(dtype="<f4"), wrapped.BitRound(keepbits=23)]
    given = [{"compressors": c} for c in compressors] + [{"filters": f} for f in filters]
    for k, settings in enumerate(given):
        path = tmp_path / f"{k}.zarr"
        group = zarr.create_group(path, zarr_format=version)
        group.create_array("X", data=ROWS, **settings)
        group.create_array("y", data=np.array(["no", "yes"] * 6, dtype=np.dtypes.StringDType()))
        with open_dataset(path) as data:
            assert data.classes == ("no", "yes")
            np.testing.assert_allclose(data.read(0, 12), ROWS, atol=1e-6)


def test_objects_in_hdf5_are_no_labels(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["X"] = ROWS
        file.create_dataset("y", (12,), dtype=h5py.ref_dtype)
    with pytest.raises(UserError, match="y holds object; labels are numbers or text"):
        open_dataset(tmp_path / "s.h5")
