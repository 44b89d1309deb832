"""Files of every version there was: read where this one knows it, else refused in one line.

`tests/support/formats` keeps a small checkpoint and a small model of each version.
When a format changes, raise its number and add what the new version writes:

    python -m bigsvm.train tests/support/formats/tiny.yaml --run-dir /tmp/tiny
    python -m bigsvm.prepare tests/support/formats/tiny-classes.csv /tmp/tiny-classes.h5
    python -m bigsvm.train tests/support/formats/tiny-classes.yaml --run-dir /tmp/tiny-classes

Checkpoint 3 (before 0.2.0: 1) and model 1 are of two classes; checkpoint 4 (2) and model 3 are of
more. Model 2 is one with
--set model.intercept=1; without an intercept, models of two classes are still 1.
"""

from pathlib import Path

import numpy as np
import pytest

from bigsvm import load_model
from bigsvm.core.errors import UserError
from bigsvm.files.checked_tensors import read_tensors, write_tensors
from bigsvm.models import model
from bigsvm.training import checkpoint
from bigsvm.training.checkpoint import Checkpoints
from tests.support.trainings import REPOSITORY

FORMATS = REPOSITORY / "tests" / "support" / "formats"
WRITTEN = {
    "checkpoint": (checkpoint.FORMAT, checkpoint.MANY_CLASSES),
    "model": (model.FORMAT, model.WITH_INTERCEPT, model.MANY_CLASSES),
}
READ = {kind: {int(name.split()[-1]) for name in names} for kind, names in WRITTEN.items()}
KEPT = sorted(FORMATS.glob("*.safetensors"))


def latest(folder: Path) -> checkpoint.Checkpoint | None:
    path = next(folder.glob("checkpoint-*.safetensors"))
    identity = read_tensors(path)[1]["identity"]
    return Checkpoints(folder, identity, 2).latest()


def as_checkpoint(path: Path, folder: Path) -> Path:
    target = folder / "checkpoint-0000000020.safetensors"
    target.write_bytes(path.read_bytes())
    return target


def test_a_file_of_each_version_is_kept() -> None:
    kept = {path.stem for path in KEPT}
    assert kept >= {f"{kind}-{number}" for kind, numbers in READ.items() for number in numbers}


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_known_versions_are_read_and_others_are_refused(path: Path, tmp_path: Path) -> None:
    kind, version = path.stem.split("-")
    if kind == "checkpoint":
        path = as_checkpoint(path, tmp_path)
    if int(version) not in READ[kind]:
        with pytest.raises(UserError, match=f"{path.name}.*bigsvm {kind} {version}"):
            load_model(path) if kind == "model" else latest(tmp_path)
        return
    if kind == "model":
        kept = load_model(path)
        assert kept.n_features == 3
        assert len(kept.classes) == (3 if version == "3" else 2)
        assert set(kept.predict(np.eye(3))) <= set(kept.classes)
        assert (kept.intercept != 0) == (version == "2")
        return
    saved = latest(tmp_path)
    assert saved is not None
    states = saved.state.classes
    assert len(states) == (1 if version == "3" else 3)
    for state in states:
        assert 0 < state.iteration <= 20
        assert state.alpha.sum() == pytest.approx(1)
        assert len(state.gradient) == len(state.role) == 40


@pytest.mark.parametrize("version", [0, 99])
def test_a_version_that_never_was(version: int, tmp_path: Path) -> None:
    for kind in READ:
        newest = FORMATS / f"{kind}-{max(READ[kind])}.safetensors"
        target = tmp_path / "checkpoint-0000000020.safetensors"
        arrays, about = read_tensors(newest)
        write_tensors(target, arrays, about | {"format": f"bigsvm {kind} {version}"})
        with pytest.raises(UserError, match=f"{target.name}.*bigsvm {kind} {version}") as caught:
            load_model(target) if kind == "model" else latest(tmp_path)
        assert "\n" not in str(caught.value)
        assert target.exists(), "work of another version is not thrown away"


def test_a_checkpoint_that_has_more_in_it_than_is_known(tmp_path: Path) -> None:
    for version in READ["checkpoint"]:
        target = as_checkpoint(FORMATS / f"checkpoint-{version}.safetensors", tmp_path)
        arrays, about = read_tensors(target)
        numbers = about["numbers"] if version == 3 else about["numbers"][0]
        numbers["momentum"] = 0.5
        write_tensors(target, arrays, about)
        with pytest.raises(UserError, match=r"another version.*momentum.*--fresh"):
            latest(tmp_path)
