"""The scores are those of scikit-learn, ties and all."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics

from bigsvm.models.scores import auc, scores_of

# Few different values: many ties, and zeros, which count as +1.
CASES = st.lists(
    st.tuples(st.sampled_from([-1, 1]), st.integers(-3, 3) | st.floats(-1e300, 1e300)),
    min_size=1,
    max_size=60,
)


@given(CASES)
def test_scores_are_those_of_scikit_learn(cases: list[tuple[int, float]]) -> None:
    signs = np.array([sign for sign, _ in cases], np.int8)
    decisions = np.array([decision for _, decision in cases], np.float64)
    chosen = np.where(decisions >= 0, 1, -1)
    scores = scores_of(signs, decisions)
    assert scores.accuracy == pytest.approx(metrics.accuracy_score(signs, chosen), abs=1e-15)
    assert scores.f1 == pytest.approx(metrics.f1_score(signs, chosen, zero_division=0), abs=1e-12)
    recalls = [np.mean(chosen[signs == sign] == sign) for sign in np.unique(signs)]
    assert scores.balanced_accuracy == pytest.approx(np.mean(recalls), abs=1e-12)
    if len(recalls) == 2:
        expected = metrics.balanced_accuracy_score(signs, chosen)
        assert scores.balanced_accuracy == pytest.approx(expected, abs=1e-12)
        assert scores.auc == pytest.approx(metrics.roc_auc_score(signs, decisions), abs=1e-12)
    else:
        assert math.isnan(scores.auc)


def test_many_rows_against_scikit_learn() -> None:
    generator = np.random.default_rng(1)
    signs = np.where(generator.random(100_000) < 0.1, 1, -1).astype(np.int8)
    decisions = np.round(generator.normal(size=100_000) + signs, 3)
    expected = metrics.roc_auc_score(signs, decisions)
    assert auc(signs, decisions) == pytest.approx(expected, abs=1e-12)


def test_auc_by_hand_and_order_of_rows_does_not_matter() -> None:
    signs = np.array([1, -1, 1, -1, 1], np.int8)
    decisions = np.array([0.5, 0.5, 2.0, -1.0, -3.0])
    # (0.5: above -1, equal to 0.5), (2: above both), (-3: above none): (1.5 + 2 + 0) of 6.
    assert auc(signs, decisions) == 3.5 / 6
    assert auc(signs[::-1], decisions[::-1]) == 3.5 / 6
    assert auc(signs, -decisions) == 2.5 / 6
