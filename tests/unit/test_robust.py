"""Numbers at the edge: a named status, a finite model and a true gap; or one line that says why."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import pytest
import yaml

from bigsvm import cli, load_model
from bigsvm.config import TOLERANCE

RNG = np.random.default_rng(0)
X = RNG.normal(size=(150, 3))
Y = np.where(X[:, 0] * X[:, 1] + 0.3 * RNG.normal(size=150) > 0, 1, -1)
RBF = {"name": "rbf", "sigma": 1.0}
STATUSES = ("converged", "max_iterations")


class Case(NamedTuple):
    x: np.ndarray = X
    y: np.ndarray = Y
    C: float = 1.0
    kernel: dict[str, Any] = RBF


KERNELS: dict[str, dict[str, Any]] = {
    "rbf": RBF,
    "laplacian": {"name": "laplacian", "sigma": 1.0},
    "linear": {"name": "linear"},
    "poly": {"name": "poly", "degree": 3, "gamma": 1.0, "coef0": 1.0},
}
CASES = {
    **{
        f"{kernel}, features scaled by 1e{power}": Case(x=X * 10.0**power, kernel=KERNELS[kernel])
        for kernel in KERNELS
        for power in (-20, -10, 10, 20)
    },
    **{f"C = 1e{power}": Case(C=10.0**power) for power in (-8, -4, 4, 8)},
    **{
        f"linear, C = 1e{power}": Case(C=10.0**power, kernel=KERNELS["linear"]) for power in (-8, 8)
    },
    "one feature at 1e18": Case(x=np.hstack([X, np.full((150, 1), 1e18)])),
    "duplicates by the thousand": Case(x=np.repeat(X[:3], 1000, axis=0), y=np.tile([1, -1], 1500)),
    "each class a single point": Case(x=np.repeat(X[:2], 500, axis=0), y=np.repeat([1, -1], 500)),
    "all rows equal": Case(x=np.ones((150, 3))),
    "all rows 0": Case(x=np.zeros((150, 3)), kernel=KERNELS["linear"]),
    "a kernel matrix of ones": Case(kernel={"name": "rbf", "sigma": 1e20}),
    "a kernel matrix of ones, poly": Case(
        kernel={"name": "poly", "degree": 1, "gamma": 1e-30, "coef0": 1.0}
    ),
    "an identity for a kernel matrix": Case(kernel={"name": "rbf", "sigma": 1e-15}),
}


def kernel_values(kernel: dict[str, Any], x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """In plain float64."""
    if kernel["name"] == "linear":
        return x @ z.T
    if kernel["name"] == "poly":
        return (kernel["gamma"] * (x @ z.T) + kernel["coef0"]) ** kernel["degree"]
    difference = x[:, None] - z[None]
    if kernel["name"] == "laplacian":
        return np.exp(-np.abs(difference).sum(axis=2) / kernel["sigma"])
    return np.exp(-((difference / kernel["sigma"]) ** 2).sum(axis=2) / 2)


@pytest.mark.filterwarnings("error:.*(invalid value|overflow|divide):RuntimeWarning")
@pytest.mark.parametrize(
    ("schedule", "algorithm", "rule"),
    [
        ("exact", "mfw", {"absolute_tolerance": 1e-6}),
        ("exact", "mfw", {}),
        ("exact", "fw", {}),
        ("block", "mfw", {}),
    ],
    ids=["exact-mfw-absolute", "exact-mfw", "exact-fw", "block-mfw"],
)
@pytest.mark.parametrize("name", CASES)
def test_ends_well_or_says_why(
    name: str, schedule: str, algorithm: str, rule: dict[str, float], tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    case = CASES[name]
    with h5py.File(tmp_path / "d.h5", "w") as file:
        file["X"], file["y"] = case.x, case.y
    config = {
        "data": {"train": str(tmp_path / "d.h5")},
        "model": {"algorithm": algorithm, "C": case.C, "kernel": case.kernel},
        "solver": {
            **{"schedule": schedule, "hot_set": 16, "threads": 1},
            **rule,
            "max_iterations": 400,
        },
    }
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(config))
    run = tmp_path / "run"
    code = cli.main(["train", str(tmp_path / "c.yaml"), "--run-dir", str(run)])
    said = capfd.readouterr().err
    if code == 2:
        errors = [line for line in said.splitlines() if line.startswith("error: ")]
        assert len(errors) == 1, said
        assert "scal" in errors[0], "what to do"
        assert not (run / "model.safetensors").exists()
        return
    assert code == 0, said
    summary = json.loads((run / "summary.json").read_text(), parse_constant=pytest.fail)
    assert summary["status"] in STATUSES
    model = load_model(run / "model.safetensors")  # which refuses what is not finite

    # The gap once more, from nothing but the model and the data, in float64.
    x = case.x.astype(np.float32).astype(np.float64)
    alpha = model.dual_coef * case.y[model.support_index]
    assert (alpha > 0).all()
    assert alpha.sum() == pytest.approx(1, abs=1e-9)
    gradient = kernel_values(case.kernel, x, x[model.support_index]) @ model.dual_coef * case.y
    gradient[model.support_index] += alpha / case.C
    size = np.abs(kernel_values(case.kernel, x, x[model.support_index])).max() + 1 / case.C
    lowest = gradient.min() if algorithm == "fw" else gradient[model.support_index].min()
    gap = gradient[model.support_index].max() - lowest
    assert gap <= summary["true_gap"] + 1e-5 * size
    if name.startswith("a kernel matrix of ones"):
        assert "cannot tell apart" in said
    if name.startswith("an identity"):
        assert "too narrow" in said
    assert np.isfinite([summary["true_gap"], summary["gap"], summary["drift"]]).all()
    if summary["status"] == "converged":
        close = summary["true_gap"] <= 1e-6 if rule else summary["true_relative_gap"] <= TOLERANCE
        assert close


def test_too_little_memory_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def too_much(argv: object) -> int:
        np.empty(2**60, np.uint8)
        return 0

    assert cli.run(too_much, []) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: not enough memory (Unable to allocate")
    assert said.count("\n") == 1
