"""Files of every version there was: read where they are of this one, else refused in one line.

`tests/formats` keeps a small checkpoint and a small model of each version, as it wrote them.
Whoever changes a format raises its number, and adds what the new version writes:

    python -m bigsvm.train tests/formats/tiny.yaml --run-dir /tmp/tiny
"""

from pathlib import Path

import numpy as np
import pytest

from bigsvm import checkpoint, load_model, model
from bigsvm.checkpoint import Checkpoints
from bigsvm.errors import UserError
from bigsvm.sealed import read_sealed, write_sealed

FORMATS = Path(__file__).parent / "formats"
VERSION = {
    "checkpoint": int(checkpoint.FORMAT.rsplit(maxsplit=1)[1]),
    "model": int(model.FORMAT.rsplit(maxsplit=1)[1]),
}
KEPT = sorted(FORMATS.glob("*.safetensors"))


def latest(folder: Path) -> checkpoint.Saved | None:
    path = next(folder.glob("checkpoint-*.safetensors"))
    identity = read_sealed(path)[1]["identity"]
    return Checkpoints(folder, identity, 2).latest()


def as_checkpoint(path: Path, folder: Path) -> Path:
    target = folder / "checkpoint-0000000020.safetensors"
    target.write_bytes(path.read_bytes())
    return target


def test_a_file_of_each_version_is_kept() -> None:
    kept = {path.stem for path in KEPT}
    assert kept == {f"{kind}-{k}" for kind in VERSION for k in range(1, VERSION[kind] + 1)}


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_this_version_is_read_and_others_are_refused(path: Path, tmp_path: Path) -> None:
    kind, version = path.stem.split("-")
    if kind == "checkpoint":
        path = as_checkpoint(path, tmp_path)
    if int(version) != VERSION[kind]:
        with pytest.raises(UserError, match=f"{path.name}.*bigsvm {kind} {version}"):
            load_model(path) if kind == "model" else latest(tmp_path)
        return
    if kind == "model":
        kept = load_model(path)
        assert kept.n_features == 3
        assert set(kept.predict(np.eye(3))) <= {-1, 1}
        return
    saved = latest(tmp_path)
    assert saved is not None
    assert saved.state.iteration == 20
    assert saved.state.alpha.sum() == pytest.approx(1)
    assert len(saved.state.gradient) == 40


@pytest.mark.parametrize("version", [0, 99])
def test_a_version_that_never_was(version: int, tmp_path: Path) -> None:
    for kind in VERSION:
        newest = FORMATS / f"{kind}-{VERSION[kind]}.safetensors"
        target = tmp_path / "checkpoint-0000000020.safetensors"
        arrays, about = read_sealed(newest)
        write_sealed(target, arrays, about | {"format": f"bigsvm {kind} {version}"})
        with pytest.raises(UserError, match=f"{target.name}.*bigsvm {kind} {version}") as caught:
            load_model(target) if kind == "model" else latest(tmp_path)
        assert "\n" not in str(caught.value)
        assert target.exists(), "work of another version is not thrown away"


def test_a_checkpoint_that_has_more_in_it_than_is_known(tmp_path: Path) -> None:
    target = as_checkpoint(FORMATS / f"checkpoint-{VERSION['checkpoint']}.safetensors", tmp_path)
    arrays, about = read_sealed(target)
    write_sealed(target, arrays, about | {"numbers": about["numbers"] | {"momentum": 0.5}})
    with pytest.raises(UserError, match=r"another version.*momentum.*--fresh"):
        latest(tmp_path)
