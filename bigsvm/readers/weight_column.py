"""A column that is no feature but says how much each row counts."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from bigsvm.core.errors import UserError
from bigsvm.readers import Batch, ReadOptions, open_reader
from bigsvm.readers.columns import check_features, column_position
from bigsvm.readers.text_rows import NO_LABEL_COLUMN
from bigsvm.readers.wording import shown
from bigsvm.training.weights import WEIGHTS_ARE, usable


class WeightedReader:
    """See `bigsvm.readers`: any file of columns; one of them becomes the `weight` of a batch."""

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self.path = path
        self._table = open_reader(path, replace(options, weight_column=None, features=None))
        if not hasattr(self._table, "label_column"):
            raise UserError(
                f"{path}: no column of weights can be told there; CSV, TSV, Parquet and npy have "
                "columns"
            )
        names: list[str] | None = getattr(self._table, "names", None)
        label: int = self._table.label_column if options.with_labels else NO_LABEL_COLUMN
        asked, columns = options.weight_column, self._table.d + options.with_labels
        position = column_position(path, asked, names, columns, "weights")
        if position == label:
            raise UserError(
                f"{path}: column {asked!r} is that of the labels; name theirs with --label-column"
            )
        self._column = position - (position > label >= 0)  # among the features
        self._place = f"column {position + 1}" + (f" ({shown(names[position])})" if names else "")
        self.n: int | None = getattr(self._table, "n", None)  # text does not say it beforehand
        self.d = self._table.d - 1
        check_features(path, self.d, options)
        self.feature_names = self._table.feature_names and [
            name for k, name in enumerate(self._table.feature_names) if k != self._column
        ]

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order."""
        for batch in self._table.batches():
            weight = batch.x[:, self._column].copy()
            fits = usable(weight)
            if not fits.all():
                row = int(np.argmin(fits))
                raise UserError(
                    f"{self.path}, {batch.place(row)}, {self._place}: {weight[row]:g} is no "
                    f"weight; {WEIGHTS_ARE}"
                )
            yield replace(batch, x=np.delete(batch.x, self._column, axis=1), weight=weight)
