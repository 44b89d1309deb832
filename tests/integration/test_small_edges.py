"""Odd names, odd settings and odd files: one line each, and the right exit code."""

import json
import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

from bigsvm import cli
from bigsvm.files import atomic
from bigsvm.models import libsvm_model
from tests.support.small_run import make_model, make_store, run
from tests.support.trainings import environment


def test_not_enough_memory_says_something(capsys: pytest.CaptureFixture[str]) -> None:
    def command(argv: object) -> int:
        raise MemoryError

    assert cli.run(command, []) == 1
    assert capsys.readouterr().err == "error: not enough memory (for the next step)\n"


@pytest.mark.parametrize("command", ["train", "predict", "prepare"])
def test_the_compiler_switched_off(command: str, tmp_path: Path) -> None:
    store = make_store(tmp_path / "s.zarr", 60)
    make_model(store, 1, 5).save(tmp_path / "m.safetensors")
    (tmp_path / "s.csv").write_text("1,2,yes\n3,4,no\n" * 5)
    (tmp_path / "c.yaml").write_text("data: {train: s.zarr}\nmodel: {kernel: {sigma: 1}}\n")
    arguments = {
        "train": ["c.yaml"],
        "predict": ["m.safetensors", "s.zarr", "out.csv"],
        "prepare": ["s.csv", "new.zarr"],
    }
    done = subprocess.run(
        [sys.executable, "-m", f"bigsvm.{command}", *arguments[command]],
        cwd=tmp_path,
        env=environment() | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "NUMBA_DISABLE_JIT" in done.stderr


def test_a_run_directory_whose_name_is_no_text(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/r\xff"))
    folder.mkdir()
    store = make_store(folder / "s.zarr", 90)
    config = folder / "c.yaml"
    config.write_text(
        "data: {train: s.zarr, test: s.zarr/test}\nmodel: {kernel: {sigma: 1}}\n"
        "solver: {max_iterations: 20, threads: 1}\nrun: {snapshot_every: 10}\n"
    )
    commands = (
        ["train", "c.yaml", "--run-dir", folder / "run"],
        ["evaluate", folder / "run"],
        ["evaluate", folder / "run", "--test", store / "test"],
        ["inspect", folder / "run"],
        ["inspect", folder / "run", "--json"],
        ["predict", folder / "run" / "model.safetensors", store, folder / "p.csv"],
        ["export", folder / "run" / "model.safetensors", folder / "m.onnx"],
    )
    for command in commands:
        done = subprocess.run(
            [sys.executable, "-m", f"bigsvm.{command[0]}", *command[1:]],
            cwd=folder,
            env=environment() | {"PYTHONIOENCODING": "utf-8:strict"},
            capture_output=True,
        )
        assert done.returncode == 0, (command, done.stderr)


def test_a_run_called_by_what_is_no_text(tmp_path: Path) -> None:
    """Its name goes into the picture."""
    store = make_store(tmp_path / "s.zarr", 90)
    name = os.fsdecode(b"r\xff$1")
    (tmp_path / name / "snapshots").mkdir(parents=True)
    make_model(store, 1, 5).save(tmp_path / name / "model.safetensors")
    code, _, err = run("bigsvm.evaluate", tmp_path / name, "--test", store)
    assert code == 0, err
    assert (tmp_path / name / "evolution.png").exists()


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("name", ["y", "other"])
def test_an_array_that_zarr_cannot_type(
    name: str, version: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "s.zarr"
    group = zarr.create_group(path, zarr_format=version)
    group.create_array("X" if name == "y" else "rows", data=np.eye(4))
    group.create_array(name, data=np.arange(4) % 2)
    metadata = path / name / ("zarr.json" if version == 3 else ".zarray")
    about = json.loads(metadata.read_text())
    about["data_type" if version == 3 else "dtype"] = "quaternion" if version == 3 else "|O"
    metadata.write_text(json.dumps(about))
    code = cli.main(["inspect", str(path)])
    said = capsys.readouterr()
    if name == "other":
        assert code == 0 and "not read" in said.out and "rows" in said.out
    else:
        assert code == 2 and said.err.count("\n") == 1


def test_an_hdf5_type_that_numpy_does_not_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["rows"] = np.eye(3)
        odd = h5py.h5t.create(h5py.h5t.OPAQUE, 5)
        space = h5py.h5s.create_simple((3,))
        h5py.h5d.create(file.id, b"odd", odd, space)
    assert cli.main(["inspect", str(tmp_path / "s.h5")]) == 0
    assert "rows" in capsys.readouterr().out


def test_an_export_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(tmp_path / "s.zarr", 90)  # scaled, so that there is a second file
    model = make_model(store, 1, 5)
    model.save(tmp_path / "m.safetensors")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic, "_fsync", full)
    command = ["export", str(tmp_path / "m.safetensors"), str(tmp_path / "x.model")]
    assert cli.main(command) == 1
    monkeypatch.undo()
    assert {path.name for path in tmp_path.iterdir()} == {"s.zarr", "m.safetensors"}
    monkeypatch.setattr(libsvm_model, "_lines", full)
    assert cli.main(command) == 1
    monkeypatch.undo()
    assert {path.name for path in tmp_path.iterdir()} == {"s.zarr", "m.safetensors"}
    assert cli.main(command) == 0
    assert (tmp_path / "x.model.json").exists()


@pytest.mark.parametrize("command", ["prepare", "train"])
def test_a_full_disk_is_the_fault_of_the_machine(command: str, small_disk: Path) -> None:
    (small_disk / "c.yaml").write_text(
        "data: {source: synthetic, train: s.zarr, prepare: {rows: 50000, features: 5}}\n"
        "model: {kernel: {sigma: 1}}\n"
    )
    arguments = ["synthetic", "s.zarr"] if command == "prepare" else ["c.yaml"]
    done = subprocess.run(
        [sys.executable, "-m", f"bigsvm.{command}", *arguments],
        cwd=small_disk,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert "are needed temporarily" in done.stderr
