"""Checkpoints, from which a run resumes to the same bits."""

from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np

from bigsvm.config.file import flatten
from bigsvm.core.errors import UserError
from bigsvm.core.weights import WEIGHT_RANGE, valid_weights
from bigsvm.core.yaml_dialect import read_yaml
from bigsvm.files.atomic import remove_stale_temporaries
from bigsvm.files.checked_tensors import read_tensors, write_tensors
from bigsvm.solvers.joint import JointProblem, JointState
from bigsvm.solvers.state import EXCLUDED, IDLE, SUPPORT, UNSEEN, PartialSolve, State, pieces
from bigsvm.terminal.logs import LOGGER

KIND = "bigsvm checkpoint "
FORMAT = KIND + "3"
MANY_CLASSES = KIND + "4"  # more than two classes
PARTIAL = KIND + "5"  # any number of classes; some with a partially solved subproblem
ARRAYS = ("alpha", "gradient", "role", "margin")  # margin only in later rounds
NUMBERS = tuple(field.name for field in fields(State) if field.name not in (*ARRAYS, "partial"))
PARTIAL_ARRAYS = {"index": np.int64, "alpha": np.float64, "gradient": np.float64, "role": np.int8}
PARTIAL_NUMBERS = {
    field.name: field.type for field in fields(PartialSolve) if field.name not in PARTIAL_ARRAYS
}


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint file."""

    state: JointState
    identity: dict[str, Any]
    seconds: float
    kernel_values: int
    prepared: dict[str, Any]


class IncompatibleCheckpoint(UserError):
    """An undamaged checkpoint in a format that this version cannot read."""


class Checkpoints:
    """The newest few checkpoints of a run.

    Parameters
    ----------
    folder : Path
    identity : dict
        What determines the result of the run: data, model and solver. Resuming with anything else
        would produce a model of neither, so it is an error.
    keep : int
    settings : dict, optional
        The whole config, to name the option that changed where the identity holds digests.
    prepared : dict, optional
        The options that the training data was prepared with, likewise.
    """

    def __init__(
        self,
        folder: Path,
        identity: dict[str, Any],
        keep: int,
        settings: dict[str, Any] | None = None,
        prepared: dict[str, Any] | None = None,
    ) -> None:
        self._folder = folder
        self._identity = identity
        self._keep = keep
        self._settings = settings or {}
        self._prepared = prepared or {}

    def save(self, state: JointState, seconds: float, kernel_values: int = 0) -> None:
        """Write a checkpoint, then delete old ones.

        A state that has overflowed is not saved: it cannot be resumed under this config.
        """
        if not all(_is_finite(of_class.gradient) for of_class in state.classes):
            return
        about: dict[str, Any] = {"identity": self._identity, "seconds": seconds}
        about |= {"kernel_values": kernel_values, "prepared": self._prepared}
        numbers = [_numbers(of_class) for of_class in state.classes]
        partial = {k: s.partial for k, s in enumerate(state.classes) if s.partial is not None}
        if len(state.classes) == 1 and not partial:
            about |= {"format": FORMAT, "numbers": numbers[0]}
            arrays = _arrays(state.classes[0])
        else:
            about |= {"format": MANY_CLASSES, "passes": state.passes, "numbers": numbers}
            arrays = {
                f"{key} {k}": values
                for k, of_class in enumerate(state.classes)
                for key, values in _arrays(of_class).items()
            }
        if partial:
            about |= {"format": PARTIAL, "partial": {}}
            for k, solve in partial.items():
                about["partial"][str(k)] = {key: getattr(solve, key) for key in PARTIAL_NUMBERS}
                arrays |= {f"partial {key} {k}": getattr(solve, key) for key in PARTIAL_ARRAYS}
        path = self._folder / f"checkpoint-{state.resumable_iteration:010d}.safetensors"
        write_tensors(path, arrays, about)
        LOGGER.debug("checkpoint: %s", path)
        # A checkpoint of a later iteration must be a damaged one that `latest` skipped.
        paths = self._paths()
        newest = paths.index(path) + 1
        for other in paths[: max(0, newest - self._keep)] + paths[newest:]:
            other.unlink()

    def latest(self) -> Checkpoint | None:
        """The newest undamaged checkpoint; damaged ones are skipped with a warning."""
        if not self._folder.is_dir():
            return None
        remove_stale_temporaries(self._folder)
        paths = self._paths()
        for path in reversed(paths):
            try:
                checkpoint = _read(path)
            except IncompatibleCheckpoint:
                raise  # falling back to an older one, or to the start, would discard work
            except UserError as damage:
                last = path == paths[0]
                then = "none is left: starting over" if last else "using the one before it"
                LOGGER.warning("%s; %s", damage, then)
                continue
            if checkpoint.identity != self._identity and self._has_no_steps(checkpoint):
                return None
            check_same_run(
                checkpoint.identity,
                self._identity,
                path.parent.parent,
                self._settings,
                (checkpoint.prepared, self._prepared),
            )
            return checkpoint
        return None

    def _has_no_steps(self, checkpoint: Checkpoint) -> bool:
        """Whether the run can start over with a corrected config without losing anything."""
        run = self._folder.parent
        models = [*run.glob("snapshots/model-*.safetensors"), *run.glob("model.safetensors")]
        return checkpoint.state.resumable_iteration == 0 and len(self._paths()) == 1 and not models

    def _paths(self) -> list[Path]:
        paths = (p for p in self._folder.glob("checkpoint-*.safetensors") if p.is_file())
        return sorted(paths, key=lambda path: (len(path.name), path.name))


_SCORED_ON = ("data.test", "data.validation")  # not part of the training data
# Entries of an identity, mostly digests, with the prefix of the options that they depend on.
_DERIVED = {
    "kernel.gamma": "model.kernel.",
    "data": "data.",
    "feature names": "data.",
    "scaling": "data.",
    "weights": "model.weights",
    "sample_weight": "model.sample_weight",
}


def check_same_run(
    found: Any,
    expected: dict[str, Any],
    folder: Path,
    settings: dict[str, Any] | None = None,
    prepared: tuple[dict[str, Any], dict[str, Any]] = ({}, {}),
) -> None:
    """Raise a UserError that names the differences between two identities of a run.

    Parameters
    ----------
    found, expected : dict
        The identities of the run in the directory, and of this one.
    folder : Path
        The run directory, whose config.yaml has the options of the run in it.
    settings : dict, optional
        The config of this one.
    prepared : (dict, dict)
        The options that their training data was prepared with.
    """
    if not isinstance(found, dict):
        raise UserError(f"{folder}: does not record what it is a run of; use another --run-dir")
    keys = sorted(k for k in found.keys() | expected.keys() if found.get(k) != expected.get(k))
    differing = []
    for key in keys:
        values = found.get(key), expected.get(key)
        if key == "seed" and "validation_fraction" in keys and None in values:
            continue  # it only counts where rows are held out
        if key in _DERIVED:
            differing += _changed_options(folder, key, values, settings or {}, prepared)
        else:
            prefix = "data." if key == "validation_fraction" else ""
            differing.append(_change(f"{prefix}{key}", *values))
    if differing:
        raise UserError(
            f"{folder}: belongs to a different config: {'; '.join(dict.fromkeys(differing))}; use "
            "another --run-dir, or --fresh to start over"
        )


def _changed_options(
    folder: Path,
    derived: str,
    values: tuple[Any, Any],
    settings: dict[str, Any],
    prepared: tuple[dict[str, Any], dict[str, Any]],
) -> list[str]:
    """The options that changed among those a value is derived from, or that their content did."""
    start, before = _DERIVED[derived], None
    with suppress(OSError, UserError):
        before = read_yaml(folder / "config.yaml")
    was, now = flatten(before if isinstance(before, dict) else {}), flatten(settings)
    changed = [
        key
        for key in sorted(was.keys() | now.keys())
        if key.startswith(start) and not key.startswith(_SCORED_ON) and was.get(key) != now.get(key)
    ]
    if not (was and now and changed):
        if isinstance(values[0], float):  # readable, unlike a digest
            return [_change(derived, *values)]
        name = "data.train" if start == "data." else start
        where = f" ({now[name]})" if name in now else ""
        first, again = prepared
        if start == "data." and first and again and first != again:
            options = [
                _change(key, first.get(key), again.get(key))
                for key in sorted(first | again)
                if first.get(key) != again.get(key)
            ]
            return [f"{name}{where} was prepared with other options: {', '.join(options)}"]
        what = derived if start == "data." and derived != "data" else "content"
        return [f"the {what} of {name}{where} changed"]
    # The default path of a store follows from these.
    causes = [key for key in changed if key.startswith(("data.source", "data.prepare."))]
    return [_change(key, was.get(key), now.get(key)) for key in causes or changed]


def _change(key: str, before: Any, now: Any) -> str:
    return f"{key} was {_short(before)} and is now {_short(now)}"


def check_same_problem(state: JointState, problem: JointProblem, folder: Path) -> None:
    """Raise a UserError if the state excludes other patterns than the problem does."""
    same = len(problem.classes) == len(state.classes) and all(
        np.array_equal(of_class.signs[some] == 0, found.role[some] == EXCLUDED)
        for of_class, found in zip(problem.classes, state.classes, strict=True)
        for some in pieces(len(found.role))
    )
    if not same:
        raise UserError(
            f"{folder}: the newest checkpoint does not match this problem; "
            "remove it, or use --fresh to start over"
        )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:197]}..."


def _read(path: Path) -> Checkpoint:
    arrays, about = read_tensors(path)
    found = str(about.get("format"))
    if found not in (FORMAT, MANY_CLASSES, PARTIAL):
        if found.startswith(KIND):
            raise _other_version(path, found)
        raise UserError(f"{path}: is {found!r}, not {FORMAT!r}")
    try:
        # Compiled code relies on shapes and types without checking them.
        rows = about["identity"]["rows"]
        partial = _partial_solves(arrays, about, rows) if found == PARTIAL else {}
        for name, values in arrays.items():
            kind = np.int8 if name.startswith("role") else np.float64
            if (values.shape, values.dtype) != ((rows,), kind):
                raise TypeError(f"{name} is not {rows} times {np.dtype(kind)}")
        if found == FORMAT:
            contents: dict[str, Any] = dict(arrays)
            states = [State(**contents, **about["numbers"])]
            state = JointState(states, states[0].passes)
        else:
            states = [
                State(**_of_class(arrays, k), **numbers)
                for k, numbers in enumerate(about["numbers"])
            ]
            if len(states) < 3 and found == MANY_CLASSES:
                raise TypeError(f"{len(states)} classes")
            for k, solve in partial.items():
                states[k].partial = solve
            state = JointState(states, about["passes"])
        _check_content(path, state, about)
        prepared = dict(about.get("prepared", {}))
        known = about["identity"], about["seconds"], about.get("kernel_values", 0)
        return Checkpoint(state, *known, prepared)
    except (AttributeError, LookupError, TypeError, ValueError) as problem:
        raise _other_version(path, f"not quite {found}: {problem}") from problem


def _partial_solves(
    arrays: dict[str, np.ndarray], about: dict[str, Any], rows: int
) -> dict[int, PartialSolve]:
    """The partially solved subproblems, by class; their arrays are removed from `arrays`."""
    solves = {}
    for k, numbers in about["partial"].items():
        contents: dict[str, Any] = {key: numbers[key] for key in PARTIAL_NUMBERS}
        contents |= {key: arrays.pop(f"partial {key} {k}") for key in PARTIAL_ARRAYS}
        shape = (min(rows, len(contents["index"])),)
        for name, kind in PARTIAL_ARRAYS.items():
            if (contents[name].shape, contents[name].dtype) != (shape, kind):
                raise TypeError(f"partial {name} {k} is not {shape[0]} times {np.dtype(kind)}")
        solves[int(k)] = PartialSolve(**contents)
    return solves


def _check_content(path: Path, state: JointState, about: dict[str, Any]) -> None:
    """Reject values that no run writes; the checksum only proves that a file is undamaged."""
    what = _check_number("passes", state.passes, int)
    what = what or _check_number("seconds", about["seconds"], float)
    what = what or _check_number("kernel_values", about.get("kernel_values", 0), int)
    for of_class in state.classes:
        what = what or _check_state(of_class)
    if what is not None:
        raise UserError(f"{path}: is undamaged, but not the state of a run ({what})")


def _check_state(state: State) -> str | None:
    """Why a state is invalid; None if it is valid."""
    for name, kind in get_type_hints(State).items():
        value = getattr(state, name)
        if name in NUMBERS and not (value is None and type(None) in get_args(kind)):
            whole = kind is int
            if what := _check_number(name, value, int if whole else float):
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
            return "a role is unknown"
        if (alpha[role != SUPPORT] != 0).any():
            return "a pattern that is no support vector has a coefficient"
        if state.margin is not None and not valid_weights(state.margin[some]).all():
            return WEIGHT_RANGE
        total += float(alpha.sum())
    # Rounding errors stay far below this, whatever the number of steps.
    if abs(total - 1) >= 1e-3:
        return f"the coefficients sum to {total:g}, not to 1"
    return None if state.partial is None else _check_partial(state.partial)


def _check_partial(solve: PartialSolve) -> str | None:
    """Why a partially solved subproblem is invalid; None if it is valid."""
    for name, kind in PARTIAL_NUMBERS.items():
        if what := _check_number(name, getattr(solve, name), int if kind is int else float):
            return what
    alpha, role = solve.alpha, solve.role
    if not (_is_finite(alpha) and _is_finite(solve.gradient)) or (alpha < 0).any():
        return "a subproblem is not finite, or has a negative coefficient"
    if ((role < IDLE) | (role > SUPPORT)).any() or (alpha[role != SUPPORT] != 0).any():
        return "a role in a subproblem is wrong"
    # The support lies in the subproblem.
    is_whole = abs(float(alpha.sum()) - solve.growth) < 1e-3 * solve.growth
    return None if is_whole else "the coefficients of a subproblem do not add up"


def _is_finite(values: np.ndarray) -> bool:
    return all(np.isfinite(values[some]).all() for some in pieces(len(values)))


def _check_number(name: str, value: Any, kind: type[int] | type[float]) -> str | None:
    """What is wrong with a number of a state, if anything; an unknown gap is infinite."""
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
        "to start over"
    )
