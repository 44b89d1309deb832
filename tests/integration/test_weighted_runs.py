"""Weighted and re-weighted trainings by the real command: the guarantees hold for them too."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from bigsvm import load_model
from bigsvm.core.errors import UserError
from bigsvm.kernels import block_of
from bigsvm.models.scoring import Scorer
from bigsvm.stores.store import open_dataset
from bigsvm.train import main
from tests.support.trainings import (
    assert_same_run,
    command,
    final,
    killed,
    newest_checkpoint,
    snapshots,
    summary,
)

SCHEDULES = {
    "exact": ("solver.schedule=exact",),
    "block": ("solver.schedule=block", "solver.hot_set=32"),
}
# Rounds that take some hundred steps each: with the default function they are soon over.
REWEIGHTED = ("model.algorithm=rwsvm", "model.C=3", "model.reweight={function: tanh, floor: 0.01}")
ROUNDS = (*REWEIGHTED, "model.rounds=3")
CLASSES = "model.class_weight={'1': 2}"


@pytest.fixture(scope="module")
def train(config: Path) -> Callable[..., None]:
    """The command, in this process: a new one each time would take longer than the training."""

    def train(run_dir: Path, *settings: str) -> None:
        main(command(config, run_dir, *settings)[3:])

    return train


def refusal(train: Callable[..., None], *arguments: Any) -> str:
    with pytest.raises(UserError) as caught:
        train(*arguments)
    return str(caught.value)


@pytest.fixture(scope="module")
def weights(stores: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The same weights in every form."""
    folder = tmp_path_factory.mktemp("weights")
    with open_dataset(stores["chunks of 1000"]) as data:
        rows, labels = data.read(0, data.n), data.labels()
    t = np.round(np.random.default_rng(0).uniform(0.25, 2.0, len(labels)), 3)
    t[::5] = 0.0
    np.save(folder / "t.npy", t)
    (folder / "t.txt").write_text("".join(f"{value:.17g}\n" for value in t))
    with h5py.File(folder / "mine.h5", "w") as file:
        file["X"], file["y"], file["importance"] = rows, labels, t[:, None]
    return {name: str(folder / name) for name in ("t.npy", "t.txt", "mine.h5")}


@pytest.mark.parametrize("key", ["weights", "sample_weight"])
def test_weights_of_a_store_and_of_files_are_the_same(
    key: str, weights: dict[str, str], train: Callable[..., None], tmp_path: Path
) -> None:
    algorithm = "model.algorithm=wsvm" if key == "weights" else "model.algorithm=mfw"
    common = (algorithm, "solver.max_iterations=400")
    train(tmp_path / "npy", *common, f"model.{key}={weights['t.npy']}")
    train(tmp_path / "text", *common, f"model.{key}={weights['t.txt']}")
    train(
        tmp_path / "store",
        *common,
        f"data.train={{path: {weights['mine.h5']}}}",
        f"model.{key}=importance",
    )
    assert final(tmp_path / "npy") == final(tmp_path / "text")
    model, same = (load_model(tmp_path / name / "model.safetensors") for name in ("npy", "store"))
    assert model.dual_coef.tobytes() == same.dual_coef.tobytes()
    t = np.load(weights["t.npy"])
    assert (t[model.support_index] > 0).all()
    if key == "weights":
        total = np.dot(t[model.support_index], np.abs(model.dual_coef))
        assert total == pytest.approx(1, abs=1e-9)


def test_other_weights_are_another_run(
    weights: dict[str, str], train: Callable[..., None], tmp_path: Path
) -> None:
    common = ("model.algorithm=wsvm", "solver.max_iterations=100")
    t = np.load(weights["t.npy"])
    np.save(tmp_path / "mine.npy", t)
    asked = (*common, f"model.weights={tmp_path / 'mine.npy'}")
    train(tmp_path / "run", *asked)
    train(tmp_path / "run", *asked)
    t[7] += 0.5
    np.save(tmp_path / "mine.npy", t)
    said = refusal(train, tmp_path / "run", *asked)
    assert f"the content of model.weights ({tmp_path / 'mine.npy'}) changed" in said
    for other in (CLASSES, "model.class_weight=balanced", "model.intercept=1"):
        key = other.partition("=")[0].removeprefix("model.")
        said = refusal(train, tmp_path / "run", *asked, other)
        assert f"{key} was None and is now" in said


def test_class_weights_are_sample_weights(
    stores: dict[str, Path], train: Callable[..., None], tmp_path: Path
) -> None:
    common = ("model.C=2", "solver.max_iterations=300", "model.intercept=0.5")
    with open_dataset(stores["chunks of 1000"]) as data:
        labels = data.labels()
    above = np.count_nonzero(labels > 0)
    shares = len(labels) / (2 * (len(labels) - above)), len(labels) / (2 * above)
    np.save(tmp_path / "balanced.npy", np.where(labels > 0, shares[1], shares[0]))
    np.save(tmp_path / "given.npy", np.where(labels > 0, 5.0, 0.5))
    for name, asked in {"balanced": "balanced", "given": "{'1': 5, '-1': 0.5}"}.items():
        train(tmp_path / name, *common, f"model.class_weight={asked}")
        train(tmp_path / f"{name} 2", *common, f"model.sample_weight={tmp_path / name}.npy")
        ours, same = (
            load_model(tmp_path / run / "model.safetensors") for run in (name, f"{name} 2")
        )
        assert np.array_equal(ours.dual_coef, same.dual_coef)
        assert ours.intercept == 0.5 * ours.dual_coef.sum() == same.intercept


def test_the_intercept_is_in_every_decision(
    stores: dict[str, Path], train: Callable[..., None], tmp_path: Path
) -> None:
    train(tmp_path / "run", "model.intercept=2", "solver.max_iterations=200")
    model = load_model(tmp_path / "run" / "model.safetensors")
    assert model.intercept != 0
    with open_dataset(stores["chunks of 1000"]) as data:
        rows = data.read(0, 500)
    distances = ((rows[:, None] - model.support_vectors[None]) ** 2).sum(axis=2)
    expected = (np.exp(-model.kernel["gamma"] * distances) + 2.0) @ model.dual_coef
    decision = model.decision_function(rows, scaled=True)
    np.testing.assert_allclose(decision, expected, atol=1e-6)
    np.testing.assert_allclose(
        model.decision_function(rows, scaled=True, precise=True), expected, atol=1e-6
    )
    assert np.array_equal(Scorer([model]).decisions(block_of(rows))[0], decision)


@pytest.fixture(scope="module")
def straight_rounds(
    train: Callable[..., None], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """The runs that nothing disturbs."""
    runs = {}
    for name, schedule in SCHEDULES.items():
        runs[name] = tmp_path_factory.mktemp("runs") / name
        train(runs[name], *ROUNDS, *schedule)
        assert summary(runs[name])["status"] == "converged"
        assert summary(runs[name])["round"] == 3
        assert len(snapshots(runs[name])) >= 2
    return runs


@pytest.mark.parametrize("name", SCHEDULES)
def test_rounds_killed_at_any_moment(
    name: str,
    start: Any,
    train: Callable[..., None],
    straight_rounds: dict[str, Path],
    tmp_path: Path,
) -> None:
    run_dir = tmp_path / "run"
    killed(start, run_dir, *ROUNDS, *SCHEDULES[name], times=4)
    train(run_dir, *ROUNDS, *SCHEDULES[name])
    assert_same_run(run_dir, straight_rounds[name])


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_round_resumes_to_the_same_bits(
    name: str, train: Callable[..., None], straight_rounds: dict[str, Path], tmp_path: Path
) -> None:
    """Stopped once in each round, and a round or two at a time."""
    run_dir = tmp_path / "run"
    common = (*REWEIGHTED, *SCHEDULES[name])
    for rounds in (1, 2, 3):
        asked = (*common, f"model.rounds={rounds}")
        ended = newest_checkpoint(run_dir) if rounds > 1 else 0
        train(run_dir, *asked, f"solver.max_iterations={ended + 40}")
        assert summary(run_dir)["status"] == "max_iterations"
        assert summary(run_dir)["round"] == rounds
        train(run_dir, *asked)
        assert summary(run_dir)["status"] == "converged"
        assert summary(run_dir)["round"] == rounds
    assert_same_run(run_dir, straight_rounds[name])
    assert "already in round 3" in refusal(train, run_dir, *common, "model.rounds=2")
    for other, word in {
        "model.reweight.floor=0.2": "reweight was",
        "solver.absolute_tolerance=1e-4": "tolerance of a round was",
    }.items():
        assert word in refusal(train, run_dir, *ROUNDS, *SCHEDULES[name], other)


def test_one_round_of_rwsvm_is_fw(train: Callable[..., None], tmp_path: Path) -> None:
    train(tmp_path / "fw", "model.algorithm=fw", "solver.max_iterations=500")
    train(tmp_path / "one", "model.algorithm=rwsvm", "solver.max_iterations=500")
    plain, one = (load_model(tmp_path / name / "model.safetensors") for name in ("fw", "one"))
    assert plain.dual_coef.tobytes() == one.dual_coef.tobytes()
    assert json.dumps(dict(one.about)).count("rwsvm") == 1


def test_binary_weights_of_mfw_give_its_model_again(
    train: Callable[..., None], tmp_path: Path
) -> None:
    """The paper's: what mfw finds is the weighted SVM whose weights are its working set."""
    from bigsvm.files.checked_tensors import read_tensors
    from bigsvm.training.checkpoint import KIND

    train(tmp_path / "mfw", "solver.absolute_tolerance=1e-6")
    newest = max((tmp_path / "mfw" / "checkpoints").iterdir())
    arrays, about = read_tensors(newest)
    assert about["format"].startswith(KIND)
    np.save(tmp_path / "binary.npy", arrays["role"] > 0)
    train(
        tmp_path / "wsvm",
        "solver.absolute_tolerance=1e-6",
        "model.algorithm=wsvm",
        f"model.weights={tmp_path / 'binary.npy'}",
    )
    found, again = (load_model(tmp_path / name / "model.safetensors") for name in ("mfw", "wsvm"))
    ours, theirs = summary(tmp_path / "mfw"), summary(tmp_path / "wsvm")
    assert ours["objective"] == pytest.approx(theirs["objective"], rel=1e-3)
    rows = found.support_vectors
    np.testing.assert_allclose(
        found.decision_function(rows), again.decision_function(rows), atol=2e-6
    )
    assert theirs["n_working"] == ours["n_working"]
