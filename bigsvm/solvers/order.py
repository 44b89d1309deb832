"""The smallest of many values, the same on every machine."""

from dataclasses import dataclass

import numpy as np

from bigsvm.solvers.state import pieces


@dataclass(frozen=True)
class Difference:
    """a - b, computed where it is looked at."""

    a: np.ndarray
    b: np.ndarray

    def __len__(self) -> int:
        return len(self.a)

    def __getitem__(self, index: np.ndarray) -> np.ndarray:
        return self.a[index] - self.b[index]


class HashOrder:
    """A number for each of n patterns, without order, always the same; another for each seed."""

    def __init__(self, n: int, seed: int = 0) -> None:
        self._n = n
        self._seed = np.uint32(seed * 0x9E3779B9 % 2**32)  # all bits differ between seeds

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, index: np.ndarray) -> np.ndarray:
        # The finalizer of MurmurHash3: every bit of the index changes every bit of the number.
        h = index.astype(np.uint32) ^ self._seed
        h ^= h >> np.uint32(16)
        h *= np.uint32(0x85EBCA6B)
        h ^= h >> np.uint32(13)
        h *= np.uint32(0xC2B2AE35)
        h ^= h >> np.uint32(16)
        return h


def k_smallest(
    values: np.ndarray | HashOrder | Difference, eligible: np.ndarray, count: int, sign: int = 1
) -> np.ndarray:
    """The indices of the `count` smallest eligible values, ascending (sign -1: largest).

    Among equals the lower index goes first. Only the value at the border is taken from numpy's
    partition, whose order of equals differs between machines.
    """
    kept = np.empty(0, np.int64)
    if count <= 0:
        return kept
    for piece in pieces(len(values)):
        here = piece.start + np.flatnonzero(eligible[piece])
        index = np.concatenate([kept, here])
        if len(index) > count:
            candidates = sign * values[index]
            border = np.partition(candidates, count - 1)[count - 1]
            below = index[candidates < border]
            index = np.sort(
                np.concatenate([below, index[candidates == border][: count - len(below)]])
            )
        kept = index
    return kept
