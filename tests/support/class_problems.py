"""Data of more than two classes, and a backend that counts what it is asked for."""

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from bigsvm.backends.in_memory import InMemoryBackend
from bigsvm.core.arrays import RowChunks
from bigsvm.kernels import Kernel


def digits(rows: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The digits of scikit-learn, scaled to [0, 1], and their classes from 0 to 9."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return (x[:rows] / 16).astype(np.float32), y[:rows]


def write_csv(path: Path, x: np.ndarray, labels: Iterable[Any]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(
            [*row, label] for row, label in zip(x.tolist(), labels, strict=True)
        )
    return path


class Counting:
    """Counts the kernel values it computes, and keeps what each pass was about."""

    def __init__(self, x: np.ndarray, kernel: Kernel) -> None:
        self._inner = InMemoryBackend(np.ascontiguousarray(x, np.float32), kernel)
        self.n, self.d = self._inner.n, self._inner.d
        self.gather, self.rows_at_once = self._inner.gather, self._inner.rows_at_once
        self.kernel_values = self._inner.kernel_values
        self.columns_computed = 0
        self.passes: list[np.ndarray] = []

    def columns(self, rows: np.ndarray, out: np.ndarray, slots: np.ndarray) -> None:
        self.columns_computed += len(rows)
        self._inner.columns(rows, out, slots)

    def matvec(self, rows: RowChunks, coef: np.ndarray) -> np.ndarray:
        self.passes.append(np.concatenate([*rows]))
        return self._inner.matvec(rows, coef)

    @property
    def values_computed(self) -> int:
        """In passes and in columns."""
        return self.n * (self.columns_computed + sum(map(len, self.passes)))
