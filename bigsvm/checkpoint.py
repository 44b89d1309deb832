"""Saving a run so that it goes on to the same bits."""

import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from bigsvm.durable import sweep
from bigsvm.errors import UserError
from bigsvm.sealed import read_sealed, write_sealed
from bigsvm.solvers.state import State

KIND = "bigsvm checkpoint "
FORMAT = KIND + "1"
ARRAYS = ("alpha", "gradient", "role")
NUMBERS = tuple(field.name for field in fields(State) if field.name not in ARRAYS)


@dataclass(frozen=True)
class Saved:
    """A checkpoint that was read back."""

    state: State
    identity: dict[str, Any]
    seconds: float


class OtherVersion(UserError):
    """A checkpoint that is whole, and that this version does not understand."""


class Checkpoints:
    """The checkpoints of one run, the newest few of them.

    Parameters
    ----------
    folder : Path
    identity : dict
        What the run is a run of: data, model and way of solving. Going on with anything else would
        give a model of neither, so it is refused.
    keep : int
    """

    def __init__(self, folder: Path, identity: dict[str, Any], keep: int) -> None:
        self._folder = folder
        self._identity = identity
        self._keep = keep

    def save(self, state: State, seconds: float) -> None:
        """Write a checkpoint, then drop those no longer wanted."""
        path = self._folder / f"checkpoint-{state.iteration:010d}.safetensors"
        about = {
            "format": FORMAT,
            "identity": self._identity,
            "seconds": seconds,
            "numbers": {key: getattr(state, key) for key in NUMBERS},
        }
        write_sealed(path, {key: getattr(state, key) for key in ARRAYS}, about)
        # One from further on can only be a damaged one that was passed over.
        paths = self._paths()
        newest = paths.index(path) + 1
        for other in paths[: max(0, newest - self._keep)] + paths[newest:]:
            other.unlink()

    def latest(self) -> Saved | None:
        """The newest checkpoint that is whole; damaged ones are named, and passed over."""
        if not self._folder.is_dir():
            return None
        sweep(self._folder)
        for path in reversed(self._paths()):
            try:
                saved = _read(path)
            except OtherVersion:
                raise  # going back to the one before, or to the start, would throw work away
            except UserError as damage:
                print(f"warning: {damage}; going back to the one before", file=sys.stderr)
                continue
            self._check(saved.identity, path)
            return saved
        return None

    def _check(self, identity: dict[str, Any], path: Path) -> None:
        differing = [
            f"{key} was {identity.get(key)!r} and is now {self._identity.get(key)!r}"
            for key in sorted(identity.keys() | self._identity.keys())
            if identity.get(key) != self._identity.get(key)
        ]
        if differing:
            raise UserError(
                f"{path.parent.parent}: is the run of another config: {'; '.join(differing)}; use "
                "another --run-dir, or --fresh to begin anew"
            )

    def _paths(self) -> list[Path]:
        return sorted(p for p in self._folder.glob("checkpoint-*.safetensors") if p.is_file())


def _read(path: Path) -> Saved:
    arrays, about = read_sealed(path)
    found = str(about.get("format"))
    if found != FORMAT:
        if found.startswith(KIND):
            raise _other_version(path, found)
        raise UserError(f"{path}: is {found!r}, not {FORMAT!r}")
    try:
        state = State(arrays["alpha"], arrays["gradient"], arrays["role"], **about["numbers"])
        return Saved(state, about["identity"], about["seconds"])
    except (LookupError, TypeError) as problem:
        raise _other_version(path, f"not quite {found}: {problem}") from problem


def _other_version(path: Path, found: str) -> OtherVersion:
    return OtherVersion(
        f"{path}: was written by another version of bigsvm ({found}; this one writes {FORMAT}); "
        "finish the run with that version, or use another --run-dir, or --fresh to begin anew"
    )
