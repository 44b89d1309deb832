"""Out of core: rows from disk are the rows in memory, few are read for few, memory is bounded."""

import json
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import yaml
import zarr
from numcodecs.zstd import compress
from zarr.codecs import BytesCodec

from bigsvm.backends.in_memory import InMemoryBackend
from bigsvm.backends.local import LocalBackend
from bigsvm.core.errors import UserError
from bigsvm.kernels import LANES, Kernel
from bigsvm.stores.direct_io import DirectRows
from bigsvm.stores.store import Dataset, open_dataset
from bigsvm.stores.writer import StoreMetadata, StoreWriter
from tests.support.trainings import HANGS, environment

N, D, CHUNK = 5000, 6, 700
FORMS = {"zstd.zarr": "zstd", "none.zarr": "none", "plain.h5": None}


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(N, D)).astype(np.float32)


@pytest.fixture(scope="module")
def folder(rows: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same rows in all forms, prepared ones and ones of the user's own."""
    folder = tmp_path_factory.mktemp("forms")
    y = np.where(np.arange(N) % 2, 1, -1).astype(np.int8)
    for name, compression in FORMS.items():
        options = {"chunk_rows": CHUNK, "compression": compression}
        with StoreWriter(
            folder / name, {"train": N}, D, StoreMetadata((0, 1)), **options
        ) as writer:
            writer.append("train", rows, y)
    with h5py.File(folder / "own.h5", "w") as file:
        file["contiguous"] = rows
        file.create_dataset("small chunks", data=rows, chunks=(10, D))
        file.create_dataset("squares", data=rows, chunks=(100, 4))
        file.create_dataset("gzip", data=rows, chunks=(100, D), compression="gzip")
        file.create_dataset("double", data=rows.astype(np.float64))
        file.create_dataset("big endian", data=rows.astype(">f4"))
        file["y"] = y
    group = zarr.create_group(folder / "own.zarr")
    group.create_array("small chunks", data=rows, chunks=(10, D), compressors=None)
    group.create_array("shards", data=rows, chunks=(10, D), shards=(100, D), compressors=None)
    group.create_array("squares", data=rows, chunks=(100, 4), compressors=None)
    big = BytesCodec(endian="big")
    group.create_array("big endian", data=rows, serializer=big, compressors=None)
    group.create_array("y", data=y)
    return folder


OWN = {
    "own.h5": ("contiguous", "small chunks", "squares", "gzip", "double", "big endian"),
    "own.zarr": ("small chunks", "shards", "squares", "big endian"),
}
ALL = [(name, "X") for name in FORMS] + [(file, x) for file, names in OWN.items() for x in names]
PLAIN = {("none.zarr", "X"), ("plain.h5", "X"), ("own.h5", "contiguous")}
PLAIN |= {("own.h5", "small chunks"), ("own.zarr", "small chunks")}


def opened(folder: Path, name: str, x: str) -> Dataset:
    return open_dataset({"path": folder / name, "x": x, "y": "y"})


@pytest.mark.parametrize(("name", "x"), ALL)
def test_rows_are_the_same_however_they_lie(
    folder: Path, rows: np.ndarray, name: str, x: str
) -> None:
    wanted = np.random.default_rng(1).integers(0, N, 300)
    with opened(folder, name, x) as data:
        for start, stop in ((0, N), (5, 6), (695, 2105), (N - 3, N), (7, 7)):
            space = np.full((N, D), np.nan, np.float32)
            np.testing.assert_array_equal(data.read(start, stop), rows[start:stop])
            np.testing.assert_array_equal(data.read(start, stop, space), rows[start:stop])
        np.testing.assert_array_equal(data.gather(wanted), rows[wanted])
        np.testing.assert_array_equal(data.gather(wanted[:5]), rows[wanted[:5]])


@pytest.mark.parametrize(("name", "x"), ALL)
@pytest.mark.parametrize("piece_bytes", [1, 3000, 10**6])
def test_panels_are_the_same_however_the_rows_lie(
    folder: Path,
    rows: np.ndarray,
    name: str,
    x: str,
    piece_bytes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bigsvm.stores.rows.PIECE_BYTES", piece_bytes)
    with opened(folder, name, x) as data:
        for start, stop in ((0, N), (700, 1400), (4900, N)):
            panels = np.full((-(-N // LANES), D, LANES), np.nan, np.float32)
            space = np.full((N, D), np.nan, np.float32)
            data.record_checksum(start, stop, rows[start:stop])
            filled = data.read_panels(start, stop, panels, space)
            lying = np.zeros((len(filled) * LANES, D), np.float32)
            lying[: stop - start] = rows[start:stop]
            np.testing.assert_array_equal(filled, lying.reshape(-1, LANES, D).swapaxes(1, 2))
            data.record_checksum(start, stop, rows[start:stop] + np.float32(1))
            with pytest.raises(UserError, match=f"rows {start} to {stop} are not what they were"):
                data.read_panels(start, stop, panels, space)


@pytest.mark.parametrize(("name", "x"), ALL)
def test_few_rows_are_read_by_themselves_where_the_file_allows_it(
    folder: Path, rows: np.ndarray, name: str, x: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    picked = []
    pick = DirectRows.pick

    def watched(self: DirectRows, indices: np.ndarray, out: np.ndarray) -> bool:
        picked.extend(indices.tolist())
        return pick(self, indices, out)

    monkeypatch.setattr(DirectRows, "pick", watched)
    with opened(folder, name, x) as data:
        np.testing.assert_array_equal(data.gather(np.array([4999, 0, 699])), rows[[4999, 0, 699]])
    assert (len(picked) > 0) == ((name, x) in PLAIN)


def test_an_hdf5_file_replaced_meanwhile_is_still_the_old_one(
    folder: Path, rows: np.ndarray, tmp_path: Path
) -> None:
    path = tmp_path / "s.h5"
    path.write_bytes((folder / "plain.h5").read_bytes())
    with open_dataset(path) as data:
        (tmp_path / "other").write_bytes(bytes(path.stat().st_size))
        (tmp_path / "other").replace(path)
        np.testing.assert_array_equal(data.read(0, N), rows)
    with pytest.raises(Exception, match="cannot be read"):
        data.read(0, 10)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("chunks_in_memory", [0, 3, 8])
def test_the_same_bits_from_disk_as_from_memory(
    folder: Path, rows: np.ndarray, name: str, chunks_in_memory: int
) -> None:
    kernel = Kernel("rbf", 0.3)
    memory = InMemoryBackend(rows, kernel)
    moved = memory.gather(np.arange(0, N, 53))
    coef = np.linspace(-1, 1, len(moved))
    columns = np.empty((2, len(moved), N), np.float32)
    slots = np.arange(len(moved))
    with open_dataset(folder / name) as data:
        disk = LocalBackend(data, kernel, chunks_in_memory * CHUNK * D * 4)
        for _ in range(2):
            assert disk.matvec(moved, coef).tobytes() == memory.matvec(moved, coef).tobytes()
            for backend, out in zip((memory, disk), columns, strict=True):
                backend.columns(moved, out, slots)
            assert columns[0].tobytes() == columns[1].tobytes()
        assert disk.gather(np.arange(0, N, 53)).tobytes() == moved.tobytes()


@pytest.mark.parametrize("left", ["a part of the file", "a part of the rows"])
def test_a_chunk_damaged_during_training_is_told(folder: Path, tmp_path: Path, left: str) -> None:
    subprocess.run(["cp", "-r", folder / "zstd.zarr", tmp_path], check=True)
    chunk = tmp_path / "zstd.zarr/train/X/c/2/0"
    with open_dataset(tmp_path / "zstd.zarr") as data:
        backend = LocalBackend(data, Kernel("rbf", 0.3), 0)
        rows = backend.gather(np.arange(3))
        some = compress(np.zeros((CHUNK - 1, D), np.float32), 1)
        chunk.write_bytes(chunk.read_bytes()[:-5] if left == "a part of the file" else some)
        with pytest.raises(UserError, match="rows 1400 to 2100: cannot be read"):
            backend.matvec(rows, np.ones(3))


def test_memory_stays_under_its_limit_with_data_several_times_as_large(tmp_path: Path) -> None:
    n, d, limit = 175_000, 1600, 352 * 2**20
    assert 4 * n * d > 2.8 * limit
    generator = np.random.default_rng(0)
    y = generator.choice(np.array([-1, 1], np.int8), 1250)
    x = generator.standard_normal((1250, d), dtype=np.float32) + 0.1 * y[:, None]
    store = tmp_path / "large.zarr"
    with StoreWriter(store, {"train": n}, d, StoreMetadata((0, 1))) as writer:
        for _ in range(0, n, 1250):  # the same again and again: quickly written
            writer.append("train", x, y)
    config = tmp_path / "large.yaml"
    solver = {"schedule": "block", "max_iterations": 100, "memory_limit": limit, "hot_set": 64}
    model = {"kernel": {"name": "rbf", "sigma": 40}}
    content = {"data": {"train": str(store)}, "model": model, "solver": solver}
    config.write_text(yaml.safe_dump(content))
    run = [sys.executable, "-m", "bigsvm.train", config, "--run-dir", tmp_path / "run"]
    subprocess.run(run, check=True, env=environment(threads=2), timeout=HANGS)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["passes"] >= 1
    assert summary["peak_rss_bytes"] < limit + 18 * n
