"""Which differences between models are significant, and the summary of many of them."""

from collections.abc import Sequence
from itertools import product

import numpy as np

LEVEL = 0.05


def wilcoxon(first: Sequence[float], second: Sequence[float]) -> float:
    """The two-sided p-value of Wilcoxon's signed-rank test for a median difference of zero.

    Pairs without a difference are left out, equal differences share their ranks, and the
    distribution is exact: of all ways to give the differences their signs.
    """
    differences = np.subtract(first, second)
    differences = differences[differences != 0]
    if not len(differences):
        return 1.0
    ranks = _shared_ranks(np.abs(differences))
    positive = ranks[differences > 0].sum()
    signs = np.array(list(product((0, 1), repeat=len(ranks))))
    sums = signs @ ranks
    centre = ranks.sum() / 2
    # Half ranks are exact in floating point, so that equal sums compare equal.
    return float(np.mean(np.abs(sums - centre) >= abs(positive - centre)))


def _shared_ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1; equal values have the mean of theirs."""
    return np.array([np.sum(values < v) + (np.sum(values == v) + 1) / 2 for v in values])


def ranks(results: dict[str, Sequence[float]], more_is_better: bool) -> dict[str, int]:
    """The rank of each model over the same repetitions: 1 for the best group, 3 for the worst.

    The models are gone through from the best mean to the worst; one that differs significantly from
    the best of the group before it opens a group of its own. As in the paper, the last group has 3
    even where there are two.
    """
    order = sorted(results, key=lambda model: np.mean(results[model]), reverse=more_is_better)
    groups = [[order[0]]]
    for model in order[1:]:
        if wilcoxon(results[groups[-1][0]], results[model]) < LEVEL:
            groups.append([model])
        else:
            groups[-1].append(model)
    places = {1: (1,), 2: (1, 3), 3: (1, 2, 3)}[len(groups)]
    return {model: place for place, group in zip(places, groups, strict=True) for model in group}


def geometric_mean_percent(values: Sequence[float], reference: Sequence[float]) -> float:
    """The geometric mean of the ratios to a reference, in percent."""
    ratios = np.asarray(values, float) / np.asarray(reference, float)
    return float(100 * np.exp(np.mean(np.log(ratios))))
