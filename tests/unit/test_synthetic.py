"""Synthetic data: the same rows however they are read, and the promised difficulty."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

import bigsvm.readers as readers
from bigsvm.core.errors import UserError
from bigsvm.preparation.synthetic import synthetic_reader


def make(
    rows: int, features: int, noise: float = 0.1, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    reader = synthetic_reader(rows, features, noise, seed)
    assert reader.d == features
    batches = list(reader.batches())
    assert [batch.first_row for batch in batches] == [
        1 + sum(len(before.x) for before in batches[:k]) for k in range(len(batches))
    ]
    return np.concatenate([b.x for b in batches]), np.concatenate([b.y for b in batches])


def test_rows_depend_on_nothing_but_seed_and_place(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = make(2500, 7)
    assert x.shape == (2500, 7)
    assert x.dtype == np.float64
    assert set(y) == {-1.0, 1.0}
    longer, _ = make(5000, 7)
    assert (longer[:2500] == x).all()
    for batch_bytes in (1, 8 * 7 * 100, 8 * 7 * 1023):
        monkeypatch.setattr(readers, "BATCH_BYTES", batch_bytes)
        again, labels = make(2500, 7)
        assert (again == x).all()
        assert (labels == y).all()
    assert (make(2500, 7, seed=1)[0] != x).all()


@pytest.mark.parametrize("features", [2, 50])
def test_difficulty(features: int) -> None:
    x, y = make(6000, features)
    train, test = slice(0, 4000), slice(4000, 6000)
    scores = {
        model: model.fit(x[train], y[train]).score(x[test], y[test])
        for model in (SVC(C=10, gamma=4 / features), LogisticRegression())
    }
    rbf, linear = scores.values()
    assert 0.82 < rbf < 0.95
    assert linear < 0.6


def test_noise_sets_the_overlap() -> None:
    scores = []
    for noise in (0.0, 0.1, 0.3):
        x, y = make(4000, 2, noise)
        model = SVC(C=10, gamma=3).fit(x[:3000], y[:3000])
        scores.append(model.score(x[3000:], y[3000:]))
    assert scores[0] > scores[1] + 0.05
    assert scores[1] > scores[2] + 0.05


@pytest.mark.parametrize(
    "wrong", [(0, 5, 0.1, 0), (5, 1, 0.1, 0), (5, 10**9, 0.1, 0), (5, 5, -1.0, 0), (5, 5, 0.1, -1)]
)
def test_wrong_settings(wrong: tuple[int, int, float, int]) -> None:
    with pytest.raises(UserError, match="synthetic data"):
        synthetic_reader(*wrong)
