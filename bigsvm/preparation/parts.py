"""The training and the test part of the parsed rows."""

from collections.abc import Iterator, Mapping

import numpy as np

from bigsvm.core.errors import UserError
from bigsvm.core.labels import Classes, Label, choose_classes, codes_of, seen, to_codes
from bigsvm.preparation.spill import Spill
from bigsvm.preparation.split import TestChoice


class Parts:
    """Rows by part, from a file for each part or by a seeded split of one file.

    Parameters
    ----------
    spills : mapping
        `train`, and `test` where there is a file of test rows.
    test_rows : int
        How many rows of `train` go to the test part.
    seed : int
    positive : label or None
        See `choose_classes`.
    names : mapping
        The input each spill was read from, for messages.
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
        self._test_rows = test_rows
        self._seed = seed
        self.d = spills["train"].d
        self.dropped = sum(spill.dropped for spill in spills.values())
        self.rows = {part: spill.n for part, spill in spills.items()}
        if test_rows:
            self.rows = {"train": spills["train"].n - test_rows, "test": test_rows}
        train = spills["train"]
        self.classes: Classes = choose_classes(train.values, positive, names["train"], train.n)
        # The code of each label in the store, by its code in the spill.
        self._codes = {
            part: to_codes(np.array(spill.values, dtype=object), self.classes, names[part])
            for part, spill in spills.items()
        }
        self.counts = self._count()
        if 0 in self.counts["train"]:
            missing = self.classes[self.counts["train"].index(0)]
            raise UserError(
                f"{names['train']}: no training row has the label {missing!r} "
                f"({seen(self.classes)}); take fewer test rows or another seed"
            )

    def batches(self) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray | None]]:
        """Yield (part, rows, codes, weights); those of a part come in the order of the file."""
        for origin, spill in self._spills.items():
            choice = self._choice(spill)
            for x, codes, weight in spill.batches():
                y = self._codes[origin][codes]
                if choice is None:
                    yield origin, x, y, weight
                    continue
                test = choice.next(len(x))
                for part, chosen in (("train", ~test), ("test", test)):
                    of_part = None if weight is None else weight[chosen]
                    yield part, x[chosen], y[chosen], of_part

    def _count(self) -> dict[str, tuple[int, ...]]:
        """Rows of each class in each part; reads the labels only."""
        known = codes_of(self.classes)
        counts = {part: np.zeros(len(known), np.int64) for part in self.rows}
        for origin, spill in self._spills.items():
            choice = self._choice(spill)
            for codes in spill.codes():
                place = np.searchsorted(known, self._codes[origin][codes])
                test = (
                    np.zeros(len(codes), dtype=bool) if choice is None else choice.next(len(codes))
                )
                counts[origin] += np.bincount(place[~test], minlength=len(known))
                if choice is not None:
                    counts["test"] += np.bincount(place[test], minlength=len(known))
        return {part: tuple(map(int, found)) for part, found in counts.items()}

    def _choice(self, spill: Spill) -> TestChoice | None:
        return TestChoice(spill.n, self._test_rows, self._seed) if self._test_rows else None
