"""Weights, margins and an intercept in `BigSVC`, against independent solvers, on real sets."""

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits, load_svmlight_file
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from bigsvm import BigSVC
from bigsvm.models.model import load_model
from bigsvm.solvers.reweight import Reweighting

Given = tuple[np.ndarray, np.ndarray]


@pytest.fixture(scope="module")
def heart(data_dir: Path) -> Given:
    X, y = load_svmlight_file(str(data_dir / "heart_scale"))
    return X.toarray(), y


@pytest.fixture(scope="module")
def weight(heart: Given) -> np.ndarray:
    """0 to 4."""
    return np.random.default_rng(0).integers(0, 5, len(heart[1])).astype(float)


def peer(X: np.ndarray, y: np.ndarray, kernel: str, C: float, **options: Any) -> np.ndarray:
    """The decisions of LIBLINEAR on the rows, by features whose product is the kernel."""
    K = X @ X.T if kernel == "linear" else rbf_kernel(X, gamma=0.1)
    size, vectors = np.linalg.eigh(K)
    features = vectors * np.sqrt(np.maximum(size, 0))
    intercept = options.pop("intercept", 0.0)
    weight = options.pop("sample_weight", None)
    svc = LinearSVC(
        C=C / 2, loss="squared_hinge", dual=True, tol=1e-10, max_iter=10**6, random_state=0,
        fit_intercept=intercept > 0, intercept_scaling=np.sqrt(intercept) or 1.0, **options,
    )  # fmt: skip
    return svc.fit(features, y, weight).decision_function(features)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sample_weight": True},
        {"class_weight": "balanced"},
        {"class_weight": {-1: 3.0, 1: 0.5}, "sample_weight": True, "intercept": 2.0},
        {"intercept": 1.0},
    ],
    ids=str,
)
def test_the_solution_of_an_independent_solver(
    heart: Given, weight: np.ndarray, kernel: str, options: dict
) -> None:
    X, y = heart
    options = dict(options)
    given = weight if options.pop("sample_weight", False) else None
    expected = peer(X, y, kernel, 2.0, sample_weight=given, **options)
    svc = BigSVC(C=2.0, kernel=kernel, gamma=0.1, algorithm="fw", **options)
    svc.fit(X, y, sample_weight=given)
    np.testing.assert_allclose(svc.decision_function(X), expected, atol=1e-4)
    assert (svc.intercept_ != 0) == ("intercept" in options)


@pytest.mark.parametrize("algorithm", ["wsvm", "rwsvm"])
def test_a_margin_of_0_leaves_a_row_out_in_every_round(heart: Given, algorithm: str) -> None:
    X, y = heart
    margin = np.arange(len(y)) % 2.0
    kept = margin > 0
    svc = BigSVC(C=2.0, gamma=0.1, algorithm=algorithm).fit(X, y, margin_weight=margin)
    alone = BigSVC(C=2.0, gamma=0.1, algorithm=algorithm).fit(X[kept], y[kept], None, margin[kept])
    assert kept[svc.support_].all()
    np.testing.assert_allclose(svc.decision_function(X), alone.decision_function(X), atol=1e-8)


def test_one_weight_is_that_of_all_rows(heart: Given) -> None:
    X, y = heart
    one, each = BigSVC().fit(X, y, 2.0), BigSVC().fit(X, y, np.full(len(y), 2.0))
    assert one.dual_coef_.tobytes() == each.dual_coef_.tobytes()


def test_a_weight_is_a_number_of_rows(heart: Given, weight: np.ndarray) -> None:
    X, y = heart
    often = weight.astype(int)
    repeated = BigSVC().fit(X.repeat(often, axis=0), y.repeat(often))
    weighted = BigSVC().fit(X, y, weight)
    np.testing.assert_allclose(
        weighted.decision_function(X), repeated.decision_function(X), rtol=1e-4, atol=1e-5
    )
    assert not set(weighted.support_) & set(np.flatnonzero(weight == 0))
    some = BigSVC().fit(X[weight > 0], y[weight > 0], weight[weight > 0])
    np.testing.assert_allclose(weighted.decision_function(X), some.decision_function(X), atol=1e-9)


def test_weights_of_one_change_nothing(heart: Given) -> None:
    X, y = heart
    for algorithm in ("fw", "mfw"):
        plain = BigSVC(algorithm=algorithm).fit(X, y).decision_function(X)
        ones = BigSVC(algorithm=algorithm).fit(X, y, np.ones(len(y))).decision_function(X)
        np.testing.assert_allclose(ones, plain, rtol=1e-9, atol=1e-12)
        none = BigSVC(algorithm=algorithm, class_weight={}).fit(X, y).decision_function(X)
        np.testing.assert_allclose(none, plain, rtol=1e-9, atol=1e-12)


def test_balanced_classes(heart: Given) -> None:
    X, y = heart
    few = np.flatnonzero((y < 0) | (np.arange(len(y)) % 6 == 0))  # of the positive ones a sixth
    X, y = X[few], y[few]
    recall = {}
    for svc in (BigSVC(), BigSVC(class_weight="balanced"), SVC(class_weight="balanced")):
        recall[str(svc)] = (svc.fit(X, y).predict(heart[0]) == heart[1])[heart[1] > 0].mean()
    plain, balanced, of_svc = recall.values()
    assert balanced > plain + 0.05 and abs(balanced - of_svc) < 0.1


def test_more_than_two_classes_with_weights() -> None:
    X, y = load_digits(return_X_y=True)
    X, y = X[:500], y[:500]
    weight = np.where(y < 5, 1.0, 0.0) + (np.arange(500) % 2)
    svc = BigSVC(C=5, class_weight="balanced").fit(X, y, weight)
    some = weight > 0
    again = BigSVC(C=5, class_weight="balanced").fit(X[some], y[some], weight[some])
    assert svc.score(X, y) > 0.9
    assert (svc.predict(X) == again.predict(X)).mean() > 0.9


def test_the_weighted_svm_asks_margins(heart: Given) -> None:
    X, y = heart
    margin = np.random.default_rng(1).uniform(0.2, 2, len(y))
    margin[:40] = 0
    svc = BigSVC(C=2.0, gamma=0.1, algorithm="wsvm").fit(X, y, margin_weight=margin)
    alpha = np.zeros(len(y))
    alpha[svc.support_] = np.abs(svc.dual_coef_[0])
    assert not alpha[:40].any()
    reached = y * svc.decision_function(X) + alpha / 2.0
    np.testing.assert_allclose(reached[svc.support_], margin[svc.support_], atol=1e-3)
    assert (reached[40:] > margin[40:] - 1e-3).all()
    plain = BigSVC(C=2.0, gamma=0.1, algorithm="fw").fit(X, y)
    ones = BigSVC(C=2.0, gamma=0.1, algorithm="wsvm").fit(X, y, margin_weight=np.ones(len(y)))
    np.testing.assert_allclose(ones.decision_function(X), plain.decision_function(X), atol=1e-9)


@pytest.mark.parametrize("function", ["tanh", "sqrt"])
def test_the_re_weighted_svm_is_two_weighted_ones(heart: Given, function: str) -> None:
    X, y = heart
    how = {"function": function, "floor": 0.05, "ceiling": 1.0}
    svc = BigSVC(C=2.0, gamma=0.1, algorithm="rwsvm", rounds=2, reweight=how).fit(X, y)
    first = BigSVC(C=2.0, gamma=0.1, algorithm="fw").fit(X, y)
    a = np.zeros(len(y))
    a[first.support_] = np.abs(first.dual_coef_[0])
    margin = Reweighting(2, **how).margin(a)
    second = BigSVC(C=2.0, gamma=0.1, algorithm="wsvm").fit(X, y, margin_weight=margin)
    np.testing.assert_allclose(svc.decision_function(X), second.decision_function(X), atol=1e-6)
    assert len(svc.support_) < len(first.support_) and svc.n_iter_[0] > first.n_iter_[0]


def test_weights_through_pipelines_searches_and_calibration(
    heart: Given, weight: np.ndarray
) -> None:
    X, y = heart
    pipeline = make_pipeline(StandardScaler(), BigSVC())
    pipeline.fit(X, y, bigsvc__sample_weight=weight)
    direct = BigSVC().fit(StandardScaler().fit_transform(X), y, weight)
    expected = direct.decision_function(StandardScaler().fit_transform(X))
    assert pipeline.decision_function(X).tobytes() == expected.tobytes()
    search = GridSearchCV(BigSVC(), {"C": [0.1, 1], "class_weight": [None, "balanced"]}, cv=3)
    assert search.fit(X, y, sample_weight=weight).best_score_ > 0.7
    calibrated = CalibratedClassifierCV(BigSVC(), cv=3).fit(X, y, sample_weight=weight)
    assert calibrated.score(X, y) > 0.8


def test_weights_of_rows_outside(heart: Given, weight: np.ndarray) -> None:
    X, y = np.float32(heart[0]), heart[1]
    options = {"class_weight": "balanced", "intercept": 1.0, "algorithm": "mfw"}
    inside = BigSVC(**options).fit(X, y, weight)
    outside = BigSVC(**options).fit(
        da.from_array(X, (50, 13)), da.from_array(y, 90), da.from_array(weight, 7)
    )
    for name in ("support_", "dual_coef_", "intercept_", "gap_"):
        assert getattr(outside, name).tobytes() == getattr(inside, name).tobytes()
    assert inside.intercept_[0] != 0


def test_an_intercept_travels(heart: Given, tmp_path: Path) -> None:
    X, y = heart
    svc = BigSVC(intercept=1.0).fit(X, y)
    svc.to_model().save(tmp_path / "m.safetensors")
    loaded = load_model(tmp_path / "m.safetensors")
    assert loaded.intercept == svc.intercept_[0] != 0
    np.testing.assert_array_equal(loaded.decision_function(X), svc.decision_function(X))


def test_a_warm_start_with_other_weights(heart: Given, weight: np.ndarray) -> None:
    X, y = heart
    svc = BigSVC(warm_start=True).fit(X, y)
    svc.fit(X, y, weight)  # some of the support vectors take no part any more
    np.testing.assert_allclose(
        svc.decision_function(X), BigSVC().fit(X, y, weight).decision_function(X), atol=1e-9
    )


def test_small_problems_are_solved_to_the_last_digit(heart: Given) -> None:
    """In whatever order the rows stand."""
    X, y = heart
    order = np.random.default_rng(0).permutation(len(y))
    svc, other = BigSVC(C=0.5).fit(X, y), BigSVC(C=0.5, random_state=1).fit(X[order], y[order])
    assert svc.algorithm_ == "fw" and svc.gap_[0] < 1e-12
    np.testing.assert_allclose(
        svc.decision_function(X), other.decision_function(X), rtol=1e-9, atol=1e-11
    )
    sparser = BigSVC(C=0.5, algorithm="mfw").fit(X, y)
    assert len(sparser.support_) < len(svc.support_) and sparser.gap_[0] < 1e-12


@pytest.mark.parametrize(
    ("options", "weights", "said"),
    [
        ({}, {"sample_weight": np.ones(3)}, r"sample_weight has shape \(3,\)"),
        ({}, {"sample_weight": np.ones((270, 2))}, "sample_weight has shape"),
        ({}, {"sample_weight": np.full(270, -1.0)}, "sample_weight: the weight of row 0"),
        ({}, {"sample_weight": np.full(270, np.nan)}, "sample_weight: the weight of row 0"),
        ({}, {"sample_weight": np.zeros(270)}, "every weight is zero"),
        ({}, {"sample_weight": np.full(270, "much")}, "sample_weight holds"),
        ({}, {"margin_weight": np.ones(270)}, "the algorithm fw takes no margin_weight"),
        ({"algorithm": "wsvm"}, {}, "the algorithm wsvm needs margin_weight"),
        ({"algorithm": "rwsvm", "rounds": 0}, {}, "rounds=0"),
        ({"algorithm": "rwsvm", "reweight": {"function": "x"}}, {}, "reweight="),
        ({"intercept": -1.0}, {}, "intercept=-1.0"),
        ({"class_weight": "heavy"}, {}, "class_weight"),
        ({"class_weight": {1: -1}}, {}, "class_weight"),
        ({"class_weight": {1: 0}}, {}, "all rows of class 1.0 have the weight 0"),
        (
            {"algorithm": "wsvm"},
            {"margin_weight": np.eye(270)[0]},
            "all rows of class -1.0 have the weight 0",
        ),
    ],
)
def test_mistakes(heart: Given, options: dict, weights: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        BigSVC(**options).fit(*heart, **weights)
