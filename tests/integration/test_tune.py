"""Tuning: the table of ordinary trainings, wherever it is computed; resumed after every kill."""

import csv
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from bigsvm import BigSVC, cli
from bigsvm.backends.in_memory import InMemoryBackend
from bigsvm.config import PrepareOptions
from bigsvm.core.stop_rule import StopRule
from bigsvm.files.checked_tensors import read_tensors, write_tensors
from bigsvm.kernels import Kernel
from bigsvm.preparation.pipeline import prepare
from bigsvm.solvers.column_cache import space_for_columns
from bigsvm.solvers.precomputed import Limits, kernel_matrix, solve
from bigsvm.solvers.problem import Problem
from bigsvm.stores.store import open_dataset
from bigsvm.train import main as train_main
from bigsvm.training.validation import held_out_rows
from bigsvm.tune import main
from bigsvm.tuning.cross_validation import (
    FoldTask,
    Grid,
    Split,
    stratified_folds,
    stratified_sample,
    validate_fold,
)
from tests.support.problems import exact_schedule
from tests.support.trainings import HANGS, environment, wait_until
from tests.support.tunings import CS, SIGMAS, command, config_for, made_store, tune

Rows = dict[tuple[str, str, float], dict[str, str]]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_store(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def config(store: Path) -> Path:
    return config_for(store)


def start(config: Path, run_dir: Path, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "bigsvm.tune", *command(config, run_dir, *arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(2),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


def found(run_dir: Path) -> dict[str, bytes]:
    """All that was computed; not the configs, which tell of threads and folders."""
    files = (*run_dir.glob("points/*"), *run_dir.glob("*.png"), run_dir / "tune.csv")
    return {path.name: path.read_bytes() for path in files}


def table(run_dir: Path) -> Rows:
    with (run_dir / "tune.csv").open() as file:
        return {(r["algorithm"], r["sigma"], float(r["C"])): r for r in csv.DictReader(file)}


@pytest.fixture(scope="module")
def straight(config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tuning that nothing disturbs."""
    run_dir = tmp_path_factory.mktemp("runs") / "straight"
    tune(config, run_dir, "solver.threads=1")
    return run_dir


def folds_of(y: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    fold_of = stratified_folds(y, 3, seed=5)
    return [(np.flatnonzero(fold_of != k), np.flatnonzero(fold_of == k)) for k in range(3)]


def plain_kernel(a: np.ndarray, b: np.ndarray, sigma: float) -> np.ndarray:
    squares = np.square(a[:, None].astype(np.float64) - b[None]).sum(2)
    return np.exp(-squares / (2 * sigma**2))


# Rows of weight 0 are among them, the one that trainings start from too.
SAMPLE_WEIGHT = np.arange(301) % 4 * 0.5
WEIGHTED: dict[str, tuple[str, ...]] = {
    "plain": (),
    "intercept": ("model.intercept=2",),
    "balanced": ("model.class_weight=balanced",),
    "all": ("model.intercept=0.5", "model.class_weight={'1': 5}", "model.sample_weight=w.npy"),
}


def C_of_rows(settings: tuple[str, ...], y: np.ndarray, rows: np.ndarray) -> np.ndarray | float:
    """What these settings make of a C of 1, in a training on some rows alone."""
    if "model.class_weight=balanced" in settings:
        return np.where(
            y[rows] > 0, *(len(rows) / (2 * (y[rows] == sign).sum()) for sign in (1, -1))
        )
    if "model.sample_weight=w.npy" in settings:
        return SAMPLE_WEIGHT[rows] * np.where(y[rows] > 0, 5.0, 1.0)
    return 1.0


@pytest.mark.parametrize("which", WEIGHTED)
def test_the_table_is_that_of_ordinary_trainings(
    config: Path, straight: Path, store: Path, tmp_path: Path, which: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    settings, run_dir = WEIGHTED[which], straight
    intercept = float(dict(text.split("=") for text in settings).get("model.intercept", 0))
    if settings:
        monkeypatch.chdir(tmp_path)
        np.save("w.npy", SAMPLE_WEIGHT)
        run_dir = tmp_path / "run"
        tune(config, run_dir, *settings, "tune.C=[0.1, 1, 10]")  # 1000 would take many steps
    with open_dataset(store) as data:
        x, y = data.read(0, data.n), data.labels()
    rows = table(run_dir)
    assert len(rows) == 2 * len(SIGMAS) * len(CS)
    for (algorithm, sigma, C), row in rows.items():
        kernel = Kernel("rbf", 1 / (2 * float(sigma) ** 2))
        measured: dict[str, list[float]] = {"accuracy": [], "support": [], "iterations": []}
        for train, test in folds_of(y):
            of_rows = C * C_of_rows(settings, y, train)
            problem = Problem(
                InMemoryBackend(x[train], kernel), y[train], of_rows, algorithm,
                StopRule(absolute=1e-5), intercept=intercept,
            )  # fmt: skip
            state = problem.start(2)
            closed = False
            while not closed:
                for _ in exact_schedule(problem, space_for_columns(2**28, len(train))).run(state):
                    pass
                state.gradient = problem.gradient(state.alpha)
                _, closed = problem.stop_test(state, state.gradient)
            kernel_values = plain_kernel(x[test], x[train], float(sigma)) + intercept
            decisions = kernel_values @ (state.alpha * y[train])
            measured["accuracy"].append(np.mean((decisions >= 0) == (y[test] > 0)))
            measured["support"].append(np.count_nonzero(state.alpha))
            measured["iterations"].append(state.iteration)
        for quantity, values in measured.items():
            for statistic in ("mean", "std", "min", "max"):
                expected = getattr(np, statistic)(values)
                assert float(row[f"{quantity}_{statistic}"]) == pytest.approx(expected, rel=1e-12)
        assert row["converged"] == row["folds"] == "3"


def test_the_best_config_has_the_weights_it_was_found_with(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bigsvm import train as training

    monkeypatch.chdir(tmp_path)
    np.save("w.npy", SAMPLE_WEIGHT)
    tune(config, tmp_path / "run", *WEIGHTED["all"], "tune.C=[1]", "tune.algorithms=[fw]")
    assert cli.run(training.main, ["run/best.yaml"]) == 0
    np.save("w.npy", SAMPLE_WEIGHT[::-1])
    again = command(
        config, tmp_path / "run", *WEIGHTED["all"], "tune.C=[1]", "tune.algorithms=[fw]"
    )
    assert cli.run(main, again) == 2  # another tuning


def test_an_independent_solver_finds_the_same_accuracies(
    config: Path, store: Path, tmp_path: Path
) -> None:
    from sklearn.svm import OneClassSVM

    tune(config, tmp_path, "tune.algorithms=[fw]", "solver.absolute_tolerance=1e-10", "tune.C=[1]")
    with open_dataset(store) as data:
        x, y = data.read(0, data.n), data.labels()
    for (_, sigma, C), row in table(tmp_path).items():
        right = []
        for train, test in folds_of(y):
            q = np.outer(y[train], y[train]) * plain_kernel(x[train], x[train], float(sigma))
            q += np.eye(len(train)) / C
            other = OneClassSVM(kernel="precomputed", nu=1 / len(train), tol=1e-10).fit(q)
            weights = other.dual_coef_[0] * y[train][other.support_]
            kernel = plain_kernel(x[test], x[train][other.support_], float(sigma))
            right.append(np.mean((kernel @ weights >= 0) == (y[test] > 0)))
        assert float(row["accuracy_mean"]) == pytest.approx(np.mean(right), abs=1e-12)


@pytest.mark.parametrize(
    "settings",
    [("solver.threads=2",), ("cluster.kind=local", "cluster.workers=2")],
    ids=["threads", "dask"],
)
def test_wherever_it_is_computed_the_bytes_are_the_same(
    config: Path, straight: Path, tmp_path: Path, settings: tuple[str, ...]
) -> None:
    process = start(config, tmp_path, *settings)
    _, err = process.communicate(timeout=HANGS)
    assert process.returncode == 0, err
    assert found(tmp_path) == found(straight)


# Enough to be killed in the middle of.
LONG = (
    "tune.sigma={from: 0.2, to: 3, count: 8}",
    "tune.C={from: 10, to: 1e4, count: 4}",
    "tune.max_iterations=10000",
)


@pytest.fixture(scope="module")
def straight_and_long(config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("runs") / "long"
    tune(config, run_dir, *LONG)
    return run_dir


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_tuning_resumes_to_the_same_bytes(
    config: Path, straight_and_long: Path, tmp_path: Path, how: signal.Signals
) -> None:
    expected = found(straight_and_long)
    process = start(config, tmp_path, *LONG)
    wait_until(lambda: len(list(tmp_path.glob("points/*.safetensors"))) > 2, process)
    process.send_signal(how)
    _, err = process.communicate(timeout=HANGS)
    assert process.returncode == (130 if how == signal.SIGINT else -9), err
    there = {path.name: path for path in tmp_path.glob("points/*.safetensors")}
    assert 2 < len(there) < 24
    assert not (tmp_path / "tune.csv").exists()
    times = {name: path.stat().st_mtime_ns for name, path in there.items()}
    tune(config, tmp_path, *LONG)
    assert found(tmp_path) == expected
    assert times == {name: path.stat().st_mtime_ns for name, path in there.items()}


def test_what_is_not_this_tuning_is_refused(
    config: Path, straight: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    before = found(straight)
    for setting, words in {
        "tune.folds=4": "folds was 3 and is now 4",
        "tune.seed=6": "seed was 5 and is now 6",
        "tune.max_iterations=7": "max_iterations was 100000 and is now 7",
        "solver.initial=1": "initial was 2 and is now 1",
    }.items():
        assert cli.run(main, command(config, straight, setting)) == 2
        said = capsys.readouterr().err
        assert words in said and "another --run-dir, or --fresh" in said
        assert said.count("\n") == 1
    assert found(straight) == before
    assert cli.run(main, command(config, straight, "tune.metric=balanced_accuracy")) == 0
    tune(config, straight)
    assert found(straight) == before


def test_a_wider_grid_computes_only_what_is_new(
    config: Path, straight: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    narrow = ("tune.C=[1000, 0.1]", "tune.sigma=[2]")
    tune(config, tmp_path, *narrow)
    first = {path: path.stat().st_mtime_ns for path in tmp_path.glob("points/*")}
    capsys.readouterr()
    tune(config, tmp_path, "tune.C=[1000, 0.1]")  # another sigma
    assert "resuming: 12 of 24 trainings are done" in capsys.readouterr().err
    assert first == {path: path.stat().st_mtime_ns for path in first}
    tune(config, tmp_path)  # another C
    assert "resuming: 24 of 36 trainings are done" in capsys.readouterr().err
    assert found(tmp_path) == found(straight)
    tune(config, tmp_path, *narrow, "tune.algorithms=[mfw]")  # a part of it
    assert "resuming: 6 of 6" in capsys.readouterr().err
    assert set(table(tmp_path)) == {("mfw", "2.0", 1000.0), ("mfw", "2.0", 0.1)}
    tune(config, tmp_path)
    assert found(tmp_path) == found(straight)


def test_more_than_two_classes_are_each_set_against_the_rest(
    config: Path, data_dir: Path, tmp_path: Path
) -> None:
    from sklearn.metrics import average_precision_score, f1_score, roc_auc_score
    from sklearn.preprocessing import label_binarize

    # Two of its features overlap; with few rows of one class the margins of the classes differ.
    lines = (data_dir / "iris.data").read_text().split()
    rows = [line.split(",") for line in lines[:120]]
    (tmp_path / "iris.csv").write_text("\n".join(f"{r[0]},{r[1]},{r[4]}" for r in rows))
    prepare(tmp_path / "iris.csv", tmp_path / "iris.zarr", PrepareOptions(scaling="standard"))
    settings = [f"data.train={tmp_path / 'iris.zarr'}", "tune.sigma=[1]", "tune.C=[1, 10]"]
    settings.append("solver.initial=0")
    weight = {"Iris-versicolor": 30.0}
    tune(config, tmp_path / "run", *settings, f"model.class_weight={weight}", "tune.metric=f1")
    with open_dataset(tmp_path / "iris.zarr") as data:
        x, y = data.read(0, data.n), data.labels()
    assert len(set(y)) == 3
    for (algorithm, _, C), row in table(tmp_path / "run").items():
        names = ("accuracy", "balanced_accuracy", "f1", "auc", "average_precision")
        scored: dict[str, list[float]] = {name: [] for name in names}
        for train, test in folds_of(y):
            svc = BigSVC(
                C=C,
                sigma=1,
                algorithm=algorithm,
                absolute_tol=1e-5,
                schedule="exact",
                class_weight={1: 30.0},
            ).fit(x[train], y[train])
            decided, chosen = svc.decision_function(x[test]), svc.predict(x[test])
            one_hot = label_binarize(y[test], classes=np.unique(y))
            recall = [np.mean(chosen[y[test] == code] == code) for code in np.unique(y)]
            scored["accuracy"].append(np.mean(chosen == y[test]))
            scored["balanced_accuracy"].append(np.mean(recall))
            scored["f1"].append(f1_score(y[test], chosen, average="macro"))
            scored["auc"].append(roc_auc_score(one_hot, decided, average="macro"))
            scored["average_precision"].append(average_precision_score(one_hot, decided))
        for name, values in scored.items():
            # The order of nearly equal decision values depends on their rounding.
            near = 0.01 if name in ("auc", "average_precision") else 1e-9
            assert float(row[f"{name}_mean"]) == pytest.approx(np.mean(values), abs=near), name
        assert row["converged"] == "3" and float(row["accuracy_mean"]) > 0.5
    assert cli.run(train_main, [str(tmp_path / "run/best.yaml")]) == 0


def test_classes_are_compared_in_units_of_their_margins() -> None:
    draw = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [150, 40, 10])
    x = draw.normal(size=(200, 2)).astype(np.float32) + y[:, None]
    kernel, rule = Kernel("rbf", 0.5), StopRule(relative=1e-6)
    matrix, fold_of = kernel_matrix(kernel, x), stratified_folds(y, 2, 0)
    test = fold_of == 0
    initial = int(np.flatnonzero(~test)[0])
    split = Split(y, fold_of, (initial, initial), class_weight=(np.array([1.0, 9.0, 100.0]),) * 2)
    grid = Grid((kernel,), (1.0,), ("fw",), rule, 100_000)
    counted = validate_fold(matrix, split, FoldTask(0, 0), grid)["chosen"][0, 0]
    plain, scaled = [], []
    C = np.array([1.0, 9.0, 100.0])[y]
    for code in range(3):
        signs = np.where(y == code, 1, -1)
        found = solve(matrix, signs, C[None], "fw", Limits(rule, 100_000), initial, test)
        q = np.outer(signs, signs) * matrix + np.diag(1 / C)
        plain.append(found.decisions[0, test])
        scaled.append(plain[-1] / (found.alpha[0] @ q @ found.alpha[0]))
    expected, other = (np.bincount(np.argmax(f, axis=0), minlength=3) for f in (scaled, plain))
    assert counted.tolist() == expected.tolist() != other.tolist()


def test_what_does_not_fit_is_sampled(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bigsvm.tuning import build

    monkeypatch.setattr(build, "_SAMPLES", (50, 100, 200))
    monkeypatch.setattr(build, "_PROGRAM_BYTES", 2**31 - build._SOLUTION_BYTES - 4 * 120**2)
    tune(config, tmp_path / "by-itself", "tune.C=[1]", "tune.sigma=[1]")
    assert "tuning on 100 of 301 patterns" in capsys.readouterr().err
    tune(config, tmp_path / "asked", "tune.C=[1]", "tune.sigma=[1]", "tune.subsample=100")
    assert "tuning on" not in capsys.readouterr().err
    assert found(tmp_path / "by-itself") == found(tmp_path / "asked")


def test_contradictory_twins_of_first_rows_leave_no_fold_undecided(
    config: Path, tmp_path: Path
) -> None:
    """A first row with a twin of the other label once ended a fold at once, with no decision."""
    draw = np.random.default_rng(0)
    X = np.round(draw.normal(size=(240, 2)), 2)
    y = np.where(X[:, 0] + 0.3 * draw.normal(size=240) > 0, 1, -1)
    X[1::2][:60], y[1::2][:60] = X[::2][:60], -y[::2][:60]  # a quarter of all rows are such twins
    np.savez(tmp_path / "twins.npz", X=X, y=y)
    prepare(tmp_path / "twins.npz", tmp_path / "twins.zarr", PrepareOptions(scaling="none"))
    for initial in (0, 1, 2):
        settings = [f"data.train={tmp_path / 'twins.zarr'}", "tune.sigma=[1]", "tune.C=[1]"]
        tune(config, tmp_path / f"{initial}", *settings, f"solver.initial={initial}")
        for row in table(tmp_path / f"{initial}").values():
            assert float(row["accuracy_min"]) > 0.6, row
            assert float(row["iterations_min"]) > 10 and row["converged"] == "3"


def test_a_damaged_point_is_computed_again(
    config: Path, straight: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    tune(config, tmp_path)
    damaged = sorted(tmp_path.glob("points/*"))[1]
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    tune(config, tmp_path)
    assert f"warning: {damaged}: is damaged" in capsys.readouterr().err
    assert found(tmp_path) == found(straight)
    tune(config, tmp_path, "tune.C=[1]", "--fresh")
    assert len(table(tmp_path)) == 4


@pytest.mark.parametrize(
    "forged", [np.zeros((1, 1), np.int64), np.zeros(4), np.full((2, 3), -1), np.zeros((2, 3))]
)
def test_a_forged_point_is_computed_again(
    forged: np.ndarray, config: Path, straight: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    shutil.copytree(straight, tmp_path / "run")
    path = sorted((tmp_path / "run").glob("points/*"))[1]
    arrays, about = read_tensors(path)
    write_tensors(path, arrays | {"support": forged}, about)
    tune(config, tmp_path / "run")
    assert f"warning: {path}: has no valid results" in capsys.readouterr().err
    assert found(tmp_path / "run") == found(straight)
    write_tensors(path, arrays, about | {"identity": None})
    assert cli.run(main, command(config, tmp_path / "run")) == 2


def test_the_best_config_trains_as_it_is(
    config: Path, straight: Path, store: Path, capsys: pytest.CaptureFixture
) -> None:
    from bigsvm import load_model
    from bigsvm import train as training

    best = yaml.safe_load((straight / "best.yaml").read_text())
    assert "tune" not in best
    rows = table(straight)
    top = max(float(row["accuracy_mean"]) for row in rows.values())
    model = best["model"]
    chosen = rows[model["algorithm"], str(model["kernel"]["sigma"]), model["C"]]
    assert float(chosen["accuracy_mean"]) == top
    assert cli.run(training.main, [str(straight / "best.yaml")]) == 0
    trained = load_model(Path(best["run"]["dir"]) / "model.safetensors")
    assert trained.about["C"] == model["C"]
    assert trained.kernel["gamma"] == 1 / (2 * model["kernel"]["sigma"] ** 2)
    for algorithm in ("fw", "mfw"):
        of_algorithm = yaml.safe_load((straight / f"best-{algorithm}.yaml").read_text())
        assert of_algorithm["model"]["algorithm"] == algorithm
        picture = (straight / f"heat-map-{algorithm}.png").read_bytes()
        assert picture.startswith(b"\x89PNG") and len(picture) > 10_000


@pytest.mark.parametrize("held_out", [False, True], ids=["all rows", "validation rows held out"])
def test_a_subsample_is_all_that_is_looked_at(
    held_out: bool, config: Path, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Validation rows are in no fold: `train best.yaml` is validated on them."""
    asked = ["data.validation_fraction=0.2", "solver.seed=9"] if held_out else []
    tune(config, tmp_path / "part", "tune.subsample=100", "tune.C=[1]", "tune.sigma=[1]", *asked)
    with open_dataset(store) as data:
        y = data.labels()
        index = np.arange(data.n)
        if held_out:
            index = np.delete(index, held_out_rows(y, data.classes, 0.2, 9))
            assert len(index) == 241
        index = index[stratified_sample(y[index], 100, 5)]
        x = data.gather(index)
    fold_of = stratified_folds(y[index], 3, 5)
    alone = tmp_path / "alone.h5"
    import h5py

    with h5py.File(alone, "w") as file:
        file["X"], file["y"] = x, y[index]
    tune(config, tmp_path / "whole", f"data.train={alone}", "tune.C=[1]", "tune.sigma=[1]")
    assert (tmp_path / "part/tune.csv").read_bytes() == (tmp_path / "whole/tune.csv").read_bytes()
    told = capsys.readouterr().err
    assert "100 patterns of 4 features, 3 folds" in told
    assert ("without the 60 patterns" in told) == held_out
    assert np.bincount(fold_of).tolist() == [34, 33, 33]


def test_the_linear_kernel_has_no_sigma(config: Path, tmp_path: Path) -> None:
    linear = ("model.kernel={name: linear}", "tune.sigma=null", "tune.algorithms=null")
    tune(config, tmp_path, *linear)
    assert {key[:2] for key in table(tmp_path)} == {("mfw", "")}
    assert yaml.safe_load((tmp_path / "best.yaml").read_text())["model"]["kernel"]["sigma"] is None
