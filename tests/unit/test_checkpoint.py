"""Checkpoints: the newest whole one is used, and only for the run it belongs to."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigsvm.core.errors import UserError
from bigsvm.files.checked_tensors import read_tensors, write_tensors
from bigsvm.solvers.joint import JointState
from bigsvm.solvers.state import State
from bigsvm.training.checkpoint import Checkpoints
from tests.support.trainings import Train, everything, one_line

IDENTITY = {"data": "abc", "rows": 9, "C": 1.0, "kernel": {"name": "rbf", "gamma": 0.5}}


def state_at(iteration: int, **more: Any) -> JointState:
    """Of two classes."""
    rng = np.random.default_rng(iteration)
    role = np.append(rng.integers(0, 3, size=8), 2).astype(np.int8)
    alpha = np.where(role == 2, rng.random(9), 0.0)
    gradient = rng.normal(size=9)
    numbers = iteration, iteration // 2, 0.1 + iteration
    return JointState([State(alpha / alpha.sum(), gradient, role, *numbers, **more)], numbers[1])


def same(one: JointState, other: JointState) -> bool:
    (left,), (right,) = one.classes, other.classes
    return one.passes == other.passes and (
        left.alpha.tobytes() == right.alpha.tobytes()
        and left.gradient.tobytes() == right.gradient.tobytes()
        and left.role.tobytes() == right.role.tobytes()
        and (left.iteration, left.passes, left.gap) == (right.iteration, right.passes, right.gap)
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "run" / "checkpoints"
    folder.mkdir(parents=True)
    return folder


def checkpoints(folder: Path, keep: int = 2, **other: Any) -> Checkpoints:
    return Checkpoints(folder, IDENTITY | other, keep)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def path_of(folder: Path, iteration: int) -> Path:
    return folder / f"checkpoint-{iteration:010d}.safetensors"


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 4
    path.write_bytes(content)


def test_saved_and_read_back(folder: Path) -> None:
    checkpoints(folder).save(state_at(7), 12.5)
    saved = checkpoints(folder).latest()
    assert saved is not None
    assert same(saved.state, state_at(7))
    assert saved.seconds == 12.5
    saved.state.classes[0].alpha[0] = 5.0  # the trainer works on it in place


def test_nothing_there(folder: Path) -> None:
    assert checkpoints(folder).latest() is None
    assert checkpoints(folder / "not made").latest() is None


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_the_newest_few_are_kept(folder: Path, keep: int) -> None:
    iterations = [5, 10, 99, 100, 1_000_000, 20_000_000_000]
    for iteration in iterations:
        checkpoints(folder, keep).save(state_at(iteration), 0.0)
        saved = checkpoints(folder, keep).latest()
        assert saved is not None and saved.state.iteration == iteration
    assert names(folder) == [path_of(folder, i).name for i in iterations[-keep:]]


@pytest.mark.parametrize("damage", [cut_short, flip_a_bit, lambda path: path.write_bytes(b"")])
def test_a_damaged_one_is_passed_over_and_named(
    folder: Path, damage: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for iteration in (1, 2, 3):
        checkpoints(folder, 3).save(state_at(iteration), 0.0)
    damage(path_of(folder, 3))
    saved = checkpoints(folder, 3).latest()
    assert saved is not None and same(saved.state, state_at(2))
    warnings = capsys.readouterr().err.splitlines()
    assert len(warnings) == 1
    assert warnings[0].startswith("warning: ") and str(path_of(folder, 3)) in warnings[0]
    damage(path_of(folder, 2))
    damage(path_of(folder, 1))
    assert checkpoints(folder, 3).latest() is None
    warnings = capsys.readouterr().err.splitlines()
    assert len(warnings) == 3
    assert ["starting over" in warning for warning in warnings] == [False, False, True]


def test_something_else_under_its_name_is_passed_over(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints(folder).save(state_at(1), 0.0)
    write_tensors(path_of(folder, 2), {"alpha": np.ones(9)}, {"format": "bigsvm model 1"})
    path_of(folder, 3).mkdir()
    (folder / "checkpoint-notes.txt").write_text("mine")
    saved = checkpoints(folder).latest()
    assert saved is not None and saved.state.iteration == 1
    assert str(path_of(folder, 2)) in capsys.readouterr().err


@pytest.mark.parametrize("keep", [1, 2])
def test_damaged_ones_do_not_count_as_kept(folder: Path, keep: int) -> None:
    """Damaged ones may be further than what is saved next: it must not fall to the pruning."""
    for iteration in (100, 200):
        checkpoints(folder, 2).save(state_at(iteration), 0.0)
        cut_short(path_of(folder, iteration))
    again = checkpoints(folder, keep)
    assert again.latest() is None
    for iteration in (50, 60):
        again.save(state_at(iteration), 0.0)
        saved = checkpoints(folder, keep).latest()
        assert saved is not None and saved.state.iteration == iteration


@pytest.mark.parametrize(
    ("other", "parts"),
    [
        ({"C": 2.0}, ["C was 1.0 and is now 2.0"]),
        ({"data": "xyz"}, ["the content of data.train changed"]),
        ({"kernel": {"name": "linear"}}, ["kernel was", "'rbf'", "is now", "'linear'"]),
        ({"schedule": "block"}, ["schedule was None and is now 'block'"]),
        ({"C": 2.0, "rows": 10}, ["C was", "rows was 9 and is now 10"]),
    ],
)
def test_another_run_is_refused(folder: Path, other: dict[str, Any], parts: list[str]) -> None:
    checkpoints(folder).save(state_at(1), 0.0)
    before = path_of(folder, 1).read_bytes()
    with pytest.raises(UserError) as caught:
        checkpoints(folder, **other).latest()
    message = str(caught.value)
    assert message.startswith(f"{folder.parent}: ")
    assert all(part in message for part in [*parts, "--fresh"]), message
    assert "\n" not in message
    assert path_of(folder, 1).read_bytes() == before
    assert checkpoints(folder).latest() is not None


def test_what_stays_the_same_is_not_named(folder: Path) -> None:
    checkpoints(folder).save(state_at(1), 0.0)
    with pytest.raises(UserError) as caught:
        checkpoints(folder, C=3.0).latest()
    assert "kernel" not in str(caught.value)


def test_leftovers_are_swept(folder: Path) -> None:
    checkpoints(folder).save(state_at(1), 0.0)
    leftover = folder / f".{path_of(folder, 2).name}.99999999.tmp"
    leftover.write_bytes(b"half")
    checkpoints(folder).latest()
    assert names(folder) == [path_of(folder, 1).name]


@pytest.mark.parametrize(
    "array, other",
    [
        ("alpha", np.zeros(8)),
        ("gradient", np.zeros(9, np.float32)),
        ("role", np.zeros(9, np.int64)),
        ("role", np.zeros((9, 1), np.int8)),
    ],
)
def test_arrays_that_compiled_code_would_run_over_are_refused(
    folder: Path, array: str, other: np.ndarray
) -> None:
    checkpoints(folder).save(state_at(5), 0.0)
    arrays, about = read_tensors(path_of(folder, 5))
    write_tensors(path_of(folder, 5), arrays | {array: other}, about)
    with pytest.raises(UserError, match=f"{array} is not 9 times"):
        checkpoints(folder).latest()


def test_the_newest_beyond_ten_digits(folder: Path) -> None:
    for iteration in (9_999_999_999, 10_000_000_001):
        state = state_at(1)
        state.classes[0].iteration = iteration
        checkpoints(folder).save(state, 0.0)
    saved = checkpoints(folder).latest()
    assert saved is not None
    assert saved.state.iteration == 10_000_000_001
    assert len(names(folder)) == 2


def forged(folder: Path, numbers: dict[str, Any] | None = None, **changes: Any) -> None:
    """A checkpoint of iteration 5 that was changed and sealed again."""
    arrays, about = read_tensors(path_of(folder, 5))
    for name in set(changes) & {*arrays, "margin"}:
        arrays[name] = changes.pop(name)
    about["numbers"] |= numbers or {}
    write_tensors(path_of(folder, 5), arrays, about | changes)


def of_nine(value: float, dtype: type = np.float64) -> np.ndarray:
    return np.full(9, value, dtype)


@pytest.mark.parametrize(
    "changes",
    [
        {"alpha": of_nine(np.nan)},
        {"alpha": of_nine(-1 / 9)},
        {"alpha": of_nine(np.inf)},
        {"alpha": of_nine(0.0)},
        {"alpha": of_nine(1e300), "role": of_nine(2, np.int8)},
        {"gradient": of_nine(np.nan)},
        {"gradient": of_nine(-np.inf)},
        {"role": of_nine(-2, np.int8)},
        {"role": of_nine(-1, np.int8)},
        {"role": of_nine(3, np.int8)},
        {"role": of_nine(0, np.int8)},
        {"numbers": {"iteration": -1}},
        {"numbers": {"iteration": 1.5}},
        {"numbers": {"iteration": "5"}},
        {"numbers": {"iteration": None}},
        {"numbers": {"iteration": True}},
        {"numbers": {"iteration": 10**30}},
        {"numbers": {"gap": float("nan")}},
        {"numbers": {"gap": "wide"}},
        {"numbers": {"gap": -float("inf")}},
        {"numbers": {"drift": []}},
        {"numbers": {"round": -3}},
        {"numbers": {"passes": {}}},
        {"seconds": "long"},
        {"seconds": float("nan")},
        {"seconds": -1},
        {"kernel_values": "many"},
    ],
    ids=str,
)
def test_what_no_run_has_written_is_passed_over(
    folder: Path, changes: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    for iteration in (4, 5):
        checkpoints(folder).save(state_at(iteration), 0.0)
    forged(folder, **changes)
    saved = checkpoints(folder).latest()
    assert saved is not None and same(saved.state, state_at(4))
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "is undamaged, but not the state of a run" in said


@pytest.mark.parametrize(
    "changes",
    [
        {"identity": None},
        {"identity": []},
        {"identity": {}},
        {"identity": {"rows": "9"}},
        {"numbers": {"alpha": [1.0]}},
        {"numbers": {"unknown": 1}},
        {"seconds": None, "format": "bigsvm checkpoint 2"},
    ],
    ids=str,
)
def test_what_has_other_parts_is_refused(folder: Path, changes: dict[str, Any]) -> None:
    checkpoints(folder).save(state_at(5), 0.0)
    forged(folder, **changes)
    with pytest.raises(UserError, match="another version"):
        checkpoints(folder).latest()


def test_a_margin_is_checked_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoints(folder).save(state_at(5, margin=np.ones(9), round=2), 0.0)
    assert checkpoints(folder).latest() is not None
    forged(folder, margin=of_nine(np.nan))
    assert checkpoints(folder).latest() is None
    assert "a weight is 0, or from" in capsys.readouterr().err


def test_roles_that_are_not_those_of_the_problem(halfway: Path, train: Train) -> None:
    """With the role -1 a training left out patterns, and ended with a gap of -inf."""
    for path in (halfway / "checkpoints").iterdir():
        arrays, about = read_tensors(path)
        arrays["role"][arrays["alpha"] == 0] = -1
        write_tensors(path, arrays, about)
    before = everything(halfway)
    assert "does not match this problem" in one_line(train(halfway, code=2))
    assert everything(halfway) == before
