"""What is decoded at once counts, not what the array needs of it."""

import subprocess
import sys
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


@pytest.fixture
def by_strips(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups are decoded a few columns at a time, as very wide ones are."""
    monkeypatch.setattr(parquet, "_MAX_BYTES", 0)
    monkeypatch.setattr(parquet, "_STRIP_BYTES", 7 * parquet._BUFFER_BYTES)


def mixed(n: int) -> pa.Table:
    """Columns of several types, one of them unused, and labels that are text."""
    columns = {f"c{k}": np.arange(n) * 0.5 + k for k in range(30)}
    columns |= {"small": np.arange(n, dtype=np.int8) % 100, "truth": np.arange(n) % 3 == 0}
    table = pa.table(columns)
    labels = pa.array([f"class {k % 3}" for k in range(n)]).dictionary_encode()
    return table.add_column(11, "label", labels)


@pytest.mark.parametrize("rows", [40, 500])
def test_strips_of_columns_are_the_same_rows(
    rows: int, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bigsvm.readers.BATCH_BYTES", 33 * 8 * 90)  # 90 rows
    pq.write_table(mixed(500), tmp_path / "s.parquet", row_group_size=rows)
    reader = ParquetReader(tmp_path / "s.parquet", ReadOptions(label_column="label"))
    assert len(reader._strips) == 1
    whole = list(reader.batches())
    request.getfixturevalue("by_strips")
    reader = ParquetReader(tmp_path / "s.parquet", ReadOptions(label_column="label"))
    assert len(reader._strips) > 3
    strips = list(reader.batches())
    assert [batch.first_row for batch in strips] == list(
        np.cumsum([1] + [len(batch.x) for batch in strips[:-1]])
    )
    for name in ("x", "y"):
        one, other = (
            np.concatenate([getattr(b, name) for b in found]) for found in (whole, strips)
        )
        assert one.tobytes() == other.tobytes() and one.shape == other.shape


def test_what_is_wrong_in_a_strip_is_named_by_row_and_column(
    tmp_path: Path, by_strips: None
) -> None:
    table = mixed(300)
    holes = pa.array([None if k == 123 else 1.0 for k in range(300)])
    pq.write_table(table.set_column(29, "hole", holes), tmp_path / "s.parquet", row_group_size=100)
    reader = ParquetReader(tmp_path / "s.parquet", ReadOptions(label_column="label"))
    with pytest.raises(UserError, match="row 124, column 'hole'"):
        list(reader.batches())


def test_nested_columns_do_not_shift_the_strips(tmp_path: Path, by_strips: None) -> None:
    pairs = pa.array([{"a": k, "b": [k, k]} for k in range(300)])
    table = mixed(300).drop_columns("label").add_column(0, "pair", pairs)
    pq.write_table(table, tmp_path / "s.parquet")
    reader = ParquetReader(tmp_path / "s.parquet", ReadOptions(label_column="pair"))
    assert [leaf for strip in reader._strips for leaf in strip] == list(
        range(34)
    )  # two leaves of the pair, 32 others
    with pytest.raises(UserError, match="labels of type struct"):
        list(reader.batches())


def test_the_memory_for_a_wide_row_group(tmp_path: Path) -> None:
    """Decoded all at once, these 120 MB would take about 370."""
    table = pa.table({f"c{k}": np.random.default_rng(k).normal(size=10_000) for k in range(1500)})
    pq.write_table(table, tmp_path / "s.parquet")
    program = (
        "import sys; from pathlib import Path;"
        "from bigsvm.backends.memory import peak_resident_set as peak;"
        "from bigsvm.readers import ReadOptions; from bigsvm.readers.parquet import ParquetReader;"
        "before = peak();"
        "options = ReadOptions(with_labels=False);"
        "sums = [b.x.sum() for b in ParquetReader(Path(sys.argv[1]), options).batches()];"
        "print((peak() - before) // 2**20)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "s.parquet")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert int(done.stdout) < 250
