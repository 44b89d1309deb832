"""The training and the test rows: from a file each, or by a seeded split of one file."""

from collections.abc import Iterator, Mapping

import numpy as np

from bigsvm.core.errors import UserError
from bigsvm.core.labels import (
    Classes,
    Label,
    choose_classes,
    class_codes,
    describe_labels,
    encode_labels,
)
from bigsvm.preparation.spill import Spill
from bigsvm.tables.encoding import Encoding

BLOCK_ROWS = 2**16


class TestRowSampler:
    """Draws exactly `test_rows` of `n` rows, every such set equally likely, in row order.

    Needs no memory for the whole set: each block draws how many test rows it has (a hypergeometric
    number), then which rows these are.
    """

    __test__ = False  # pytest would collect the class because of its name

    def __init__(self, n: int, test_rows: int, seed: int) -> None:
        self._masks = self._blocks(n, test_rows, np.random.default_rng(seed))
        self._pending = np.zeros(0, dtype=bool)

    def next(self, count: int) -> np.ndarray:
        """A mask of the next `count` rows: True for test rows."""
        while len(self._pending) < count:
            self._pending = np.concatenate([self._pending, next(self._masks)])
        mask, self._pending = self._pending[:count], self._pending[count:]
        return mask

    @staticmethod
    def _blocks(n: int, test_rows: int, random: np.random.Generator) -> Iterator[np.ndarray]:
        left = test_rows
        for start in range(0, n, BLOCK_ROWS):
            size = min(BLOCK_ROWS, n - start)
            share = int(random.hypergeometric(left, n - start - left, size))
            mask = np.zeros(size, dtype=bool)
            mask[random.choice(size, share, replace=False)] = True
            left -= share
            yield mask


class TrainTestSplit:
    """The parsed rows divided into the parts `train` and `test`.

    Parameters
    ----------
    spills : mapping
        `train`, and `test` if there is a file of test rows.
    test_rows : int
        How many rows of `train` to move to the test part.
    seed : int
    positive : label or None
        See `choose_classes`.
    names : mapping
        The input that each spill was read from, for messages.
    """

    def __init__(
        self,
        spills: Mapping[str, Spill],
        test_rows: int,
        seed: int,
        positive: Label | None,
        names: Mapping[str, str],
    ) -> None:
        self._spills = spills
        self._encoding: Encoding | None = None
        self._features: np.ndarray | None = None
        self.test_rows = test_rows
        self._seed = seed
        self.d = spills["train"].d
        self.dropped = sum(spill.dropped for spill in spills.values())
        self.rows = {part: spill.n for part, spill in spills.items()}
        if test_rows:
            self.rows = {"train": spills["train"].n - test_rows, "test": test_rows}
        train = spills["train"]
        self.classes: Classes = choose_classes(train.values, positive, names["train"], train.n)
        # Maps the label codes of a spill to the class codes of the store.
        self._codes = {
            part: encode_labels(np.array(spill.values, dtype=object), self.classes, names[part])
            for part, spill in spills.items()
        }
        self.counts = self._count()
        if 0 in self.counts["train"]:
            missing = self.classes[self.counts["train"].index(0)]
            raise UserError(
                f"{names['train']}: no training row has the label {missing!r} "
                f"({describe_labels(self.classes)}); take fewer test rows or another seed"
            )

    def apply(self, encoding: Encoding, features: np.ndarray) -> None:
        """Keep only some features of the spilled rows from now on, and fill their gaps.

        Parameters
        ----------
        encoding : Encoding
            Its features are those that are kept.
        features : (d,) bool
            Which of the spilled ones these are.
        """
        self._encoding, self._features = encoding, features
        self.d = len(encoding.features)

    def batches(self) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray | None]]:
        """Yield (part, rows, codes, weights); each part keeps the order of its file."""
        for origin, spill in self._spills.items():
            sampler = self._sampler(spill)
            for x, codes, weight in spill.batches():
                if self._encoding is not None:
                    x = x[:, self._features]
                    self._encoding.fill_gaps(x)
                y = self._codes[origin][codes]
                if sampler is None:
                    yield origin, x, y, weight
                    continue
                test = sampler.next(len(x))
                for part, chosen in (("train", ~test), ("test", test)):
                    part_weight = None if weight is None else weight[chosen]
                    yield part, x[chosen], y[chosen], part_weight

    def _count(self) -> dict[str, tuple[int, ...]]:
        """Count the rows of each class in each part; reads the labels only."""
        known = class_codes(self.classes)
        counts = {part: np.zeros(len(known), np.int64) for part in self.rows}
        for origin, spill in self._spills.items():
            sampler = self._sampler(spill)
            for codes in spill.codes():
                classes = np.searchsorted(known, self._codes[origin][codes])
                if sampler is None:
                    counts[origin] += np.bincount(classes, minlength=len(known))
                    continue
                test = sampler.next(len(codes))
                counts["train"] += np.bincount(classes[~test], minlength=len(known))
                counts["test"] += np.bincount(classes[test], minlength=len(known))
        return {part: tuple(map(int, found)) for part, found in counts.items()}

    def _sampler(self, spill: Spill) -> TestRowSampler | None:
        return TestRowSampler(spill.n, self.test_rows, self._seed) if self.test_rows else None
