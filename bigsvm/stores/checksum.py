"""A checksum fast enough to be taken of every chunk on every pass."""

import numpy as np

from bigsvm.core.compiled import njit


class Checksum:
    """128 bits of float32 rows, which may come in pieces.

    A change in any one bit changes the one half for certain, a change of order, be it of whole rows
    with the same values in other places, all but certainly the other.
    """

    def __init__(self) -> None:
        self._sums = np.zeros(2, np.uint64)
        self._count = 0

    def add(self, rows: np.ndarray) -> None:
        """Take in the next rows, C-contiguous."""
        words = rows.reshape(-1).view(np.uint32)
        _add(words, self._count, self._sums)
        self._count += len(words)

    @property
    def value(self) -> int:
        """The checksum of all rows so far."""
        plain, by_place = self._sums.tolist()
        return int(plain << 64 | by_place)


def checksum(rows: np.ndarray) -> int:
    """The checksum of C-contiguous float32 rows."""
    whole = Checksum()
    whole.add(rows)
    return whole.value


@njit(cache=True, nogil=True)
def _add(words, first, sums):  # type: ignore[no-untyped-def]
    plain, by_place = np.uint64(0), np.uint64(0)
    for i in range(len(words)):
        word = words[i]
        plain += np.uint64(word)
        # Squared: of words times their places the sum is the same after many an exchange of rows.
        mixed = np.uint64(word ^ np.uint32((first + i) * 2654435761))
        by_place += mixed * mixed
    sums[0] += plain
    sums[1] += by_place
