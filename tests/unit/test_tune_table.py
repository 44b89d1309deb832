"""Folds and samples, and the order of what was found in them."""

import numpy as np
import pytest

from bigsvm.tuning.cross_validation import stratified_folds, stratified_sample
from bigsvm.tuning.table import QUANTITIES, Point, edges_reached, heading, line, ranked


@pytest.mark.parametrize("positive", [0.05, 0.5, 0.9])
def test_folds_and_samples_keep_the_proportions(positive: float) -> None:
    y = np.where(np.random.default_rng(1).random(1003) < positive, 1, -1).astype(np.int8)
    fold_of = stratified_folds(y, 10, 0)
    for sign in (-1, 1):
        counts = np.bincount(fold_of[y == sign], minlength=10)
        assert counts.max() - counts.min() <= 1
    counts = np.bincount(fold_of)
    assert counts.max() - counts.min() <= 1
    assert not np.array_equal(fold_of, stratified_folds(y, 10, 1))
    index = stratified_sample(y, 200, 0)
    assert len(set(index)) == 200 and (np.diff(index) > 0).all()
    assert abs(np.mean(y[index] > 0) - np.mean(y > 0)) <= 0.5 / 200 + 1e-12
    assert not np.array_equal(index, stratified_sample(y, 200, 1))
    assert len(stratified_sample(y, 5000, 0)) == 1003
    few = stratified_sample(np.array([-1] * 1000 + [1] * 3), 10, 0)
    assert (few >= 1000).sum() == 2


def point(C: float, accuracy: float, support: int, sigma: float | None = 1.0) -> Point:
    values = {"accuracy": np.array([accuracy]), "support": np.array([support])}
    return Point("fw", sigma, C, values, 1)


def test_among_equals_the_sparser_is_best() -> None:
    points = [point(1, 0.9, 5), point(2, 0.8, 1), point(4, 0.9, 3), point(3, 0.9, 3, 2.0)]
    assert [p.C for p in ranked(points, "accuracy")] == [3, 4, 1, 2]
    assert edges_reached(points[0], [1, 2, 3, 4], [0.5, 1.0, 2.0]) == ["C"]
    assert edges_reached(points[3], [1, 2, 3, 4], [0.5, 1.0, 2.0]) == ["sigma"]
    assert edges_reached(point(1, 1, 1, None), [1], [None]) == []


@pytest.mark.parametrize("metric", ["accuracy", "f1", "auc", "average_precision"])
def test_the_metric_has_a_column(metric: str) -> None:
    """Whatever the lines are ordered by is among what they show."""
    values = {name: np.array([0.25]) for name in QUANTITIES} | {metric: np.array([0.71])}
    shown = line(Point("fw", 1.0, 10.0, values, 1), metric)
    name = {"f1": "F1", "auc": "AUC", "average_precision": "av. prec."}.get(metric, metric)
    end = heading(metric).index(name) + len(name)
    assert shown[:end].endswith("71.00 %")
    assert len(shown) == len(heading(metric)) - len("converged") + len("1 of 1")
