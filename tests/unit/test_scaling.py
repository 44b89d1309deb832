"""Scaling is fitted in one pass as exactly as in two, and survives JSON to the bit."""

import json

import numpy as np
import pytest

from bigsvm.core.errors import UserError
from bigsvm.core.scaling import Scaling, ScalingFit


def fit(X: np.ndarray, kind: str, clip: float | None = None, batch: int = 64) -> Scaling:
    collected = ScalingFit(X.shape[1])
    for start in range(0, len(X), batch):
        collected.add(X[start : start + batch])
    return collected.finish(kind, clip)


def test_standard_gives_mean_0_and_deviation_1() -> None:
    X = np.random.default_rng(0).normal(3, 5, size=(1000, 4)) ** 3
    scaling = fit(X, "standard")
    np.testing.assert_allclose(scaling.offset, X.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(scaling.scale, X.std(axis=0), rtol=1e-12)
    scaled = scaling.apply(X)
    assert scaled.dtype == np.float32 and scaled.flags.c_contiguous
    np.testing.assert_array_equal(scaled, ((X - scaling.offset) / scaling.scale).astype("f4"))


def test_minmax_fills_minus_1_to_1() -> None:
    X = np.random.default_rng(1).uniform(-7, 90, size=(300, 5))
    scaled = fit(X, "minmax").apply(X)
    np.testing.assert_array_equal(scaled.min(axis=0), -1)
    np.testing.assert_array_equal(scaled.max(axis=0), 1)


def test_none_changes_nothing_but_clips_when_asked() -> None:
    X = np.array([[-3.0, 0.1], [2.0, 5.0]])
    np.testing.assert_array_equal(fit(X, "none").apply(X), X.astype(np.float32))
    np.testing.assert_array_equal(fit(X, "none", clip=2).apply(X), np.float32([[-2, 0.1], [2, 2]]))


def test_large_mean_does_not_cancel() -> None:
    X = 1e9 + np.random.default_rng(2).normal(0, 1e-3, size=(5000, 1))
    exact = np.std(X.astype(np.longdouble), axis=0)
    np.testing.assert_allclose(fit(X, "standard", batch=7).scale, exact.astype(float), rtol=1e-9)


def test_huge_outliers_survive() -> None:
    X = np.random.default_rng(3).normal(size=(1000, 1))
    X[500] = 1e8
    scaling = fit(X, "standard", clip=8, batch=10)
    np.testing.assert_allclose(scaling.scale, X.std(axis=0), rtol=1e-12)
    assert scaling.apply(X).max() == 8


@pytest.mark.parametrize("value", [0.0, 0.1, -1e300, 1 / 3])
@pytest.mark.parametrize("kind", ["standard", "minmax"])
def test_constant_features_become_0(kind: str, value: float) -> None:
    X = np.full((1001, 1), value)
    scaling = fit(X, kind, batch=10)
    assert scaling.scale[0] == 1
    np.testing.assert_array_equal(scaling.apply(X), 0)


def test_same_batches_same_bits_and_json_keeps_them() -> None:
    X = np.random.default_rng(4).lognormal(0, 5, size=(500, 6))
    for kind in ("standard", "minmax", "none"):
        scaling = fit(X, kind, clip=0.1)
        again = Scaling.from_json(json.loads(json.dumps(scaling.to_json())))
        for other in (again, fit(X, kind, clip=0.1)):
            assert other == scaling
            assert other.offset.tobytes() == scaling.offset.tobytes()
            assert other.scale.tobytes() == scaling.scale.tobytes()
    assert fit(X, "standard") != fit(X, "minmax")


def test_values_too_large_are_named() -> None:
    X = np.array([[0.0, 1e200], [1.0, -1e200]])
    with pytest.raises(UserError, match=r"feature 2 .* too large for standard"):
        fit(X, "standard")
    np.testing.assert_array_equal(fit(X, "minmax").apply(X), [[-1, 1], [1, -1]])


def test_unknown_kind() -> None:
    with pytest.raises(UserError, match="'robust' is not known; choose one of standard"):
        fit(np.eye(2), "robust")
