"""What is decoded at once counts, not what the array needs of it."""

from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

from bigsvm.core.errors import UserError
from bigsvm.readers import ReadOptions, parquet
from bigsvm.readers.parquet import ParquetReader
from bigsvm.stores.store import open_dataset
from tests.support.small_run import run
from tests.support.trainings import summary

X = np.random.default_rng(0).normal(size=(400, 5)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int)


def store(path: Path, chunk_rows: int) -> Path:
    group = zarr.create_group(path)
    group.create_array("X", shape=X.shape, dtype="f4", chunks=(chunk_rows, 5))[:] = X
    group.create_array("y", data=Y)
    return path


def config(folder: Path, limit: str) -> Path:
    path = folder / "c.yaml"
    path.write_text(
        f"data: {{train: {folder / 's.zarr'}}}\nmodel: {{kernel: {{sigma: 1}}}}\n"
        f"solver: {{memory_limit: {limit}, threads: 1, max_iterations: 100}}\n"
        f"run: {{dir: {folder / 'run'}}}\n"
    )
    return path


def test_a_chunk_counts_as_far_as_it_reaches_beyond_the_array(tmp_path: Path) -> None:
    assert open_dataset(store(tmp_path / "a.zarr", 100)).stored_chunk_bytes == 100 * 5 * 4
    assert open_dataset(store(tmp_path / "b.zarr", 10**6)).stored_chunk_bytes == 10**6 * 5 * 4
    with h5py.File(tmp_path / "c.h5", "w") as file:
        file.create_dataset("X", data=X, chunks=(1000, 3), maxshape=(None, None))
        file["y"] = Y
    assert open_dataset(tmp_path / "c.h5").stored_chunk_bytes == 1000 * 6 * 4


def test_chunks_beyond_the_limit_are_refused_before_they_are_read(tmp_path: Path) -> None:
    store(tmp_path / "s.zarr", 8_000_000)  # 153 MiB each
    code, _, err = run("bigsvm.train", config(tmp_path, "400MiB"))
    lines = [line for line in err.splitlines() if not line.startswith("compiling")]
    assert code == 2 and len(lines) == 1
    assert "chunks of 153 MiB" in lines[0] and "store smaller chunks" in lines[0]
    assert not (tmp_path / "run").exists()


def test_ordinary_chunks_train_within_the_same_limit(tmp_path: Path) -> None:
    store(tmp_path / "s.zarr", 100)
    code, _, err = run("bigsvm.train", config(tmp_path, "400MiB"))
    assert code == 0, err
    assert summary(tmp_path / "run")["peak_rss_bytes"] < 400 * 2**20


def test_a_row_group_that_is_far_too_wide_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = {f"c{k}": np.arange(500.0) for k in range(40)} | {"y": np.arange(500) % 2}
    pq.write_table(pa.table(columns), tmp_path / "s.parquet", use_dictionary=False)
    assert ParquetReader(tmp_path / "s.parquet", ReadOptions()).d == 40
    monkeypatch.setattr(parquet, "_MOST_BYTES", 40 * parquet._BUFFER_BYTES)
    with pytest.raises(UserError, match=r"500 rows and 41 columns takes 3 MiB.*row_group_size="):
        ParquetReader(tmp_path / "s.parquet", ReadOptions())
