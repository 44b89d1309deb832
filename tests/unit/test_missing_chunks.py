"""A missing chunk reads as zeros, and the user is told so."""

from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

from bigsvm import BigSVC, cli
from bigsvm.core.errors import UserError
from bigsvm.stores.fingerprint import verified_fingerprint
from bigsvm.stores.store import open_dataset
from tests.support.small_run import make_store
from tests.support.small_stores import write

X = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
Y = np.arange(20) % 2 + 1


def own(path: Path, version: int = 3, **how: object) -> Path:
    group = zarr.create_group(path, zarr_format=version)
    group.create_array("X", data=X, chunks=(4, 3), **how)
    group.create_array("y", data=Y, chunks=(10,))
    return path


def lose(path: Path, name: str) -> None:
    chunks = [p for p in (path / name).rglob("*") if p.is_file() and not p.name.startswith(".z")]
    chunks = sorted(p for p in chunks if p.name != "zarr.json")
    chunks[-1].unlink()


@pytest.mark.parametrize("version", [2, 3])
def test_a_lost_chunk_is_counted(version: int, tmp_path: Path) -> None:
    path = own(tmp_path / "s.zarr", version)
    assert open_dataset(path).missing_chunk_warnings() == []
    lose(path, "X")
    [line] = open_dataset(path).missing_chunk_warnings()
    assert "1 of 5 chunks of the rows are missing and are read as 0.0" in line
    assert open_dataset(path, with_labels=False).missing_chunk_warnings() == [line]


def test_a_lost_shard_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    group = zarr.create_group(path)
    group.create_array("X", data=X, chunks=(2, 3), shards=(8, 3))
    group.create_array("y", data=Y)
    lose(path, "X")
    [line] = open_dataset(path).missing_chunk_warnings()
    assert "1 of 3 chunks" in line


@pytest.mark.parametrize("folder", ["", "deep/"])
def test_a_chunk_lost_from_a_remote_store_is_counted(folder: str, tmp_path: Path) -> None:
    import fsspec

    path = own(tmp_path / "s.zarr")
    there = fsspec.filesystem("memory")
    address = f"memory://absent/{folder}s.zarr"
    there.put(str(path), address, recursive=True)
    with open_dataset(address) as whole:
        assert whole.missing_chunk_warnings() == []
    there.rm(f"{address}/X/c/3/0")
    with open_dataset(address) as torn:
        [line] = torn.missing_chunk_warnings()
    assert line.startswith(address) and "1 of 5 chunks of the rows are missing" in line


def test_chunks_that_were_never_written_to_hdf5(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file.create_dataset("X", (20, 3), "f4", chunks=(5, 3))[:10] = X[:10]
        file["y"] = Y
    [line] = open_dataset(tmp_path / "s.h5").missing_chunk_warnings()
    assert "2 of 4 chunks" in line


@pytest.mark.parametrize("command", ["train", "tune", "predict", "evaluate", "inspect"])
def test_every_command_says_so(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = own(tmp_path / "s.zarr")
    (tmp_path / "c.yaml").write_text(
        f"data: {{train: {path}, test: {path}}}\nmodel: {{kernel: {{sigma: 1}}}}\n"
        f"run: {{dir: {tmp_path / 'run'}}}\ntune: {{C: [1], sigma: [1], folds: 2}}\n"
    )
    model = tmp_path / "run" / "model.safetensors"
    if command in ("predict", "evaluate"):
        assert cli.main(["train", str(tmp_path / "c.yaml")]) == 0
    lose(path, "X")
    capsys.readouterr()
    arguments = {
        "train": [tmp_path / "c.yaml"],
        "tune": [tmp_path / "c.yaml"],
        "predict": [model, path, tmp_path / "out.csv"],
        "evaluate": [model.parent],
        "inspect": [path],
    }
    assert cli.main([command, *map(str, arguments[command])]) == 0
    said = capsys.readouterr()
    once = 2 if command == "train" else 1  # the training set, and the test set
    assert (said.out + said.err).count("1 of 5 chunks of the rows are missing") == once


def test_the_estimator_warns(tmp_path: Path) -> None:
    path = own(tmp_path / "s.zarr")
    lose(path, "X")
    with pytest.warns(UserWarning, match="1 of 5 chunks of the rows"):
        BigSVC().fit(str(path))


@pytest.mark.parametrize("name", ["X", "y"])
def test_in_a_store_of_ours_it_is_an_error(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / "s.zarr")
    lose(path / "train", name)
    with pytest.raises(UserError, match="damaged"), open_dataset(path) as data:
        verified_fingerprint(data)


def test_predicting_a_store_of_ours_without_a_chunk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.support.small_run import make_model

    path = make_store(tmp_path / "s.zarr", 90)
    make_model(path, 1, 10).save(tmp_path / "m.safetensors")
    lose(path / "test", "X")
    arguments = [tmp_path / "m.safetensors", path, tmp_path / "out.csv"]
    assert cli.main(["predict", *map(str, arguments)]) == 2
    assert not (tmp_path / "out.csv").exists()
