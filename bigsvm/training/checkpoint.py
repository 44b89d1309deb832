"""Saving a run so that it goes on to the same bits."""

import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np

from bigsvm.core.errors import UserError
from bigsvm.core.weights import WEIGHT_RANGE, valid_weights
from bigsvm.files.atomic import remove_stale_temporaries
from bigsvm.files.checked_tensors import read_tensors, write_tensors
from bigsvm.solvers.class_states import ClassStates
from bigsvm.solvers.one_vs_rest import OneVsRest
from bigsvm.solvers.problem import Problem
from bigsvm.solvers.state import EXCLUDED, SUPPORT, UNSEEN, State, pieces

KIND = "bigsvm checkpoint "
FORMAT = KIND + "3"
MANY_CLASSES = KIND + "4"  # of more than two classes
ARRAYS = ("alpha", "gradient", "role", "margin")  # the last only in later rounds
NUMBERS = tuple(field.name for field in fields(State) if field.name not in ARRAYS)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was read back."""

    state: State | ClassStates
    identity: dict[str, Any]
    seconds: float
    kernel_values: int


class IncompatibleCheckpoint(UserError):
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

    def save(self, state: State | ClassStates, seconds: float, kernel_values: int = 0) -> None:
        """Write a checkpoint, then drop those no longer wanted.

        Where a kernel value overflowed there is nothing to resume, and the config must change.
        """
        states = state.classes if isinstance(state, ClassStates) else [state]
        if not all(_is_finite(of_class.gradient) for of_class in states):
            return
        about: dict[str, Any] = {"identity": self._identity, "seconds": seconds}
        about["kernel_values"] = kernel_values
        if isinstance(state, State):
            about |= {"format": FORMAT, "numbers": _numbers(state)}
            arrays = _arrays(state)
        else:
            numbers = [_numbers(of_class) for of_class in state.classes]
            about |= {"format": MANY_CLASSES, "passes": state.passes, "numbers": numbers}
            arrays = {
                f"{key} {k}": values
                for k, of_class in enumerate(state.classes)
                for key, values in _arrays(of_class).items()
            }
        path = self._folder / f"checkpoint-{state.iteration:010d}.safetensors"
        write_tensors(path, arrays, about)
        # One from further on can only be a damaged one that was passed over.
        paths = self._paths()
        newest = paths.index(path) + 1
        for other in paths[: max(0, newest - self._keep)] + paths[newest:]:
            other.unlink()

    def latest(self) -> Checkpoint | None:
        """The newest checkpoint that is whole; damaged ones are named, and passed over."""
        if not self._folder.is_dir():
            return None
        remove_stale_temporaries(self._folder)
        paths = self._paths()
        for path in reversed(paths):
            try:
                saved = _read(path)
            except IncompatibleCheckpoint:
                raise  # going back to the one before, or to the start, would throw work away
            except UserError as damage:
                last = path == paths[0]
                then = "none is left: beginning anew" if last else "going back to the one before"
                print(f"warning: {damage}; {then}", file=sys.stderr)
                continue
            if saved.identity != self._identity and self._never_took_a_step(saved):
                return None
            check_same_run(saved.identity, self._identity, path.parent.parent)
            return saved
        return None

    def _never_took_a_step(self, saved: Checkpoint) -> bool:
        """Whether nothing is lost where the run begins anew with a corrected config."""
        run = self._folder.parent
        models = [*run.glob("snapshots/model-*.safetensors"), *run.glob("model.safetensors")]
        return saved.state.iteration == 0 and len(self._paths()) == 1 and not models

    def _paths(self) -> list[Path]:
        paths = (p for p in self._folder.glob("checkpoint-*.safetensors") if p.is_file())
        return sorted(paths, key=lambda path: (len(path.name), path.name))


def check_same_run(found: Any, wanted: dict[str, Any], folder: Path) -> None:
    """A UserError that names in what the identity found in a run directory is not the wanted."""
    if not isinstance(found, dict):
        raise UserError(f"{folder}: does not say what it is a run of; use another --run-dir")
    differing = [
        f"{key} was {_short(found.get(key))} and is now {_short(wanted.get(key))}"
        for key in sorted(found.keys() | wanted.keys())
        if found.get(key) != wanted.get(key)
    ]
    if differing:
        raise UserError(
            f"{folder}: is the run of another config: {'; '.join(differing)}; use "
            "another --run-dir, or --fresh to begin anew"
        )


def check_same_problem(
    state: State | ClassStates, problem: Problem | OneVsRest, folder: Path
) -> None:
    """Refuse a state in which other patterns take no part than in the problem."""
    problems = problem.classes if isinstance(problem, OneVsRest) else [problem]
    states = state.classes if isinstance(state, ClassStates) else [state]
    same = len(problems) == len(states) and all(
        np.array_equal(of_class.signs[some] == 0, found.role[some] == EXCLUDED)
        for of_class, found in zip(problems, states, strict=True)
        for some in pieces(len(found.role))
    )
    if not same:
        raise UserError(
            f"{folder}: the newest checkpoint is not one of this problem, though it says so; "
            "remove it, or use --fresh to begin anew"
        )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:197]}..."


def _read(path: Path) -> Checkpoint:
    arrays, about = read_tensors(path)
    found = str(about.get("format"))
    if found not in (FORMAT, MANY_CLASSES):
        if found.startswith(KIND):
            raise _other_version(path, found)
        raise UserError(f"{path}: is {found!r}, not {FORMAT!r}")
    try:
        # Compiled code trusts these to the last byte.
        rows = about["identity"]["rows"]
        for name, values in arrays.items():
            kind = np.int8 if name.startswith("role") else np.float64
            if (values.shape, values.dtype) != ((rows,), kind):
                raise TypeError(f"{name} is not {rows} times {np.dtype(kind)}")
        state: State | ClassStates
        if found == FORMAT:
            contents: dict[str, Any] = dict(arrays)
            state = State(**contents, **about["numbers"])
        else:
            states = [
                State(**_of_class(arrays, k), **numbers)
                for k, numbers in enumerate(about["numbers"])
            ]
            state = ClassStates(states, about["passes"])
        _check_content(path, state, about)
        return Checkpoint(state, about["identity"], about["seconds"], about.get("kernel_values", 0))
    except (LookupError, TypeError) as problem:
        raise _other_version(path, f"not quite {found}: {problem}") from problem


def _check_content(path: Path, state: State | ClassStates, about: dict[str, Any]) -> None:
    """Refuse what no run has written: the seal says that a file is whole, not who wrote it."""
    if isinstance(state, ClassStates):
        if len(state.classes) < 3:
            raise TypeError(f"{len(state.classes)} classes")
        what = _mistake_in_number("passes", state.passes, int)
    else:
        what = None
    what = what or _mistake_in_number("seconds", about["seconds"], float)
    what = what or _mistake_in_number("kernel_values", about.get("kernel_values", 0), int)
    for of_class in state.classes if isinstance(state, ClassStates) else [state]:
        what = what or _mistake(of_class)
    if what is not None:
        raise UserError(f"{path}: is sealed, but not the state of a run ({what})")


def _mistake(state: State) -> str | None:
    """What cannot be right about a state, if anything."""
    for name, kind in get_type_hints(State).items():
        value = getattr(state, name)
        if name not in ARRAYS and not (value is None and type(None) in get_args(kind)):
            whole = kind is int
            if what := _mistake_in_number(name, value, int if whole else float):
                return what
    total = 0.0
    for some in pieces(len(state.alpha)):
        alpha, role = state.alpha[some], state.role[some]
        if not np.isfinite(alpha).all() or (alpha < 0).any():
            return "a coefficient is negative or not finite"
        if not np.isfinite(state.gradient[some]).all():
            return "the gradient is not finite"
        lowest = UNSEEN if state.sample else EXCLUDED
        if ((role < lowest) | (role > SUPPORT)).any():
            return "a role is none"
        if (alpha[role != SUPPORT] != 0).any():
            return "a coefficient is that of no support vector"
        if state.margin is not None and not valid_weights(state.margin[some]).all():
            return WEIGHT_RANGE
        total += float(alpha.sum())
    # Rounding alone never comes to this, however many the steps.
    return None if abs(total - 1) < 1e-3 else f"the coefficients sum to {total:g}, not to 1"


def _is_finite(values: np.ndarray) -> bool:
    return all(np.isfinite(values[some]).all() for some in pieces(len(values)))


def _mistake_in_number(name: str, value: Any, kind: type[int] | type[float]) -> str | None:
    """Of all numbers in a state none is negative; the gap is infinite until it is known."""
    right = isinstance(value, int | kind) and not isinstance(value, bool) and value >= 0
    return None if right and (kind is float or value < 2**62) else f"{name} is {str(value)[:40]}"


def _of_class(arrays: dict[str, np.ndarray], k: int) -> dict[str, Any]:
    return {key: arrays[f"{key} {k}"] for key in ARRAYS if f"{key} {k}" in arrays}


def _numbers(state: State) -> dict[str, Any]:
    return {key: getattr(state, key) for key in NUMBERS}


def _arrays(state: State) -> dict[str, np.ndarray]:
    arrays = {key: getattr(state, key) for key in ARRAYS}
    return {key: values for key, values in arrays.items() if values is not None}


def _other_version(path: Path, found: str) -> IncompatibleCheckpoint:
    return IncompatibleCheckpoint(
        f"{path}: was written by another version of bigsvm ({found}; this one writes {FORMAT} and "
        f"{MANY_CLASSES}); finish the run with that version, or use another --run-dir, or --fresh "
        "to begin anew"
    )
