"""Seeded folds and subsamples that keep the proportions of the classes."""

import numpy as np

from bigsvm.core.errors import UserError


def stratified_folds(y: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """The fold of each pattern, (n,) int64 from 0.

    Each class is shuffled and dealt out like cards; the second class goes on where the first one
    ended, so that the folds differ by one pattern at most.
    """
    rng = np.random.default_rng(seed)
    fold_of = np.empty(len(y), np.int64)
    dealt = 0
    for sign in (-1, 1):
        index = np.flatnonzero(y == sign)
        if len(index) < folds:
            raise UserError(
                f"tune.folds = {folds}: the smaller class has {len(index)} patterns; "
                + (f"take at most {len(index)} folds" if len(index) > 1 else "that is too few")
            )
        fold_of[rng.permutation(index)] = (dealt + np.arange(len(index))) % folds
        dealt += len(index)
    return fold_of


def stratified_sample(y: np.ndarray, count: int, seed: int) -> np.ndarray:
    """`count` patterns in ascending order, of each class its share rounded; all of them if fewer.

    A class never vanishes: it keeps two patterns at least, as far as it has them.
    """
    if count >= len(y):
        return np.arange(len(y))
    rng = np.random.default_rng(seed)
    negative, positive = np.flatnonzero(y < 0), np.flatnonzero(y > 0)
    least, most = max(2, count - len(negative)), min(len(positive), count - 2)
    share = min(max(round(count * len(positive) / len(y)), least), most)
    chosen = [
        rng.choice(negative, count - share, replace=False),
        rng.choice(positive, share, replace=False),
    ]
    return np.sort(np.concatenate(chosen))
