"""Parsed rows in temporary files, so that text is parsed only once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bigsvm.core.errors import UserError
from bigsvm.core.labels import Label, distinct_labels
from bigsvm.readers import Batch
from bigsvm.stores.rows import CHUNK_BYTES, rows_that_fit

CODE = np.uint16
CODES_PER_READ = 2**20


class Spill:
    """Rows (float64), labels (as indices into `values`) and weights, in one raw file each."""

    def __init__(self, folder: Path, name: str, d: int, weighted: bool = False) -> None:
        self.n = 0
        self.d = d
        self.dropped = 0
        self.values: list[Label] = []
        self._code_of: dict[Label, int] = {}
        # Batches depend on d only, not on how the reader divided the rows, so that the sums which
        # fit a scaling have the same bits for every reader.
        self._batch_rows = rows_that_fit(CHUNK_BYTES, d, itemsize=8)
        self._rows = (folder / f"{name}.rows").open("w+b")
        self._codes = (folder / f"{name}.codes").open("w+b")
        self._weights = (folder / f"{name}.weights").open("w+b") if weighted else None

    def append(self, batch: Batch, drop_value: float | None, where: str) -> None:
        """Append the rows of `batch`, except those with `drop_value` in every feature."""
        x, y, weight = batch.x, batch.y, batch.weight
        if drop_value is not None:
            kept = (x != drop_value).any(axis=1)
            if not kept.all():
                x, y = x[kept], y[kept]
                weight = None if weight is None else weight[kept]
                self.dropped += len(batch.x) - len(x)
        codes = np.empty(len(x), dtype=CODE)
        for value, label in distinct_labels(y, where).items():
            if label not in self._code_of:
                if len(self.values) > np.iinfo(CODE).max:
                    raise UserError(
                        f"{where}: far too many different labels; is it the right column?"
                    )
                self._code_of[label] = len(self.values)
                self.values.append(label)
            codes[y == value] = self._code_of[label]
        self._rows.write(np.ascontiguousarray(x, dtype=np.float64).data)
        self._codes.write(codes.data)
        if self._weights is not None and weight is not None:
            self._weights.write(weight.data)
        self.n += len(x)

    def batches(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray | None]]:
        """Yield all rows, codes and weights in order."""
        self._rows.seek(0)  # this also flushes
        self._codes.seek(0)
        weight = None
        if self._weights is not None:
            self._weights.seek(0)
        for start in range(0, self.n, self._batch_rows):
            m = min(self._batch_rows, self.n - start)
            rows = np.fromfile(self._rows, dtype=np.float64, count=m * self.d)
            codes = np.fromfile(self._codes, dtype=CODE, count=m)
            if self._weights is not None:
                weight = np.fromfile(self._weights, dtype=np.float64, count=m)
            yield rows.reshape(m, self.d), codes, weight

    def codes(self) -> Iterator[np.ndarray]:
        """Yield all codes in order."""
        self._codes.seek(0)
        for start in range(0, self.n, CODES_PER_READ):
            yield np.fromfile(self._codes, dtype=CODE, count=min(CODES_PER_READ, self.n - start))

    def __enter__(self) -> Spill:
        return self

    def __exit__(self, *error: object) -> None:
        self._rows.close()
        self._codes.close()
        if self._weights is not None:
            self._weights.close()
