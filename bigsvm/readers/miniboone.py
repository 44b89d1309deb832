"""The MiniBooNE text of UCI: two counts, then rows of numbers, all signal rows first."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from bigsvm.core.errors import UserError
from bigsvm.readers import MAX_FEATURES, Batch, ReadOptions
from bigsvm.readers.columns import check_features
from bigsvm.readers.detect import SAMPLE_BYTES, first_lines
from bigsvm.readers.table import SPACE, explain_table, parse_table
from bigsvm.readers.text_rows import NO_LABEL_COLUMN, TextFormat, text_batches


class MinibooneReader:
    """See `bigsvm.readers`."""

    feature_names: list[str] | None = None

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self.path = path
        self.with_labels = options.with_labels
        if options.label_column is not None:
            raise UserError(f"{path}: MiniBooNE text has no label column; leave that option out")
        lines = first_lines(path)
        numbered = [k for k, line in enumerate(lines) if line.strip()]
        counts = lines[numbered[0]].split() if numbered else []
        if len(counts) != 2 or not all(count.isascii() and count.isdigit() for count in counts):
            raise UserError(
                f"{path}: not MiniBooNE text: the first line must be two counts, signal and "
                "background"
            )
        self.signal, self.background = (int(count) for count in counts)
        self.skip_lines = numbered[0] + 1
        self.d = len(lines[numbered[1]].split()) if len(numbered) > 1 else 0
        if self.d > min(MAX_FEATURES, SAMPLE_BYTES // 8):
            raise UserError(f"{path}: {self.d} or more features per row is not MiniBooNE text")
        check_features(path, self.d, ReadOptions(with_labels=False, features=options.features))

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order, labelled by the counts."""
        settings = np.array([SPACE, self.d, NO_LABEL_COLUMN], np.int64)
        expected = self.signal + self.background
        done = 0
        form = TextFormat(
            parse_table,
            settings,
            self.d,
            lambda column: f"column {column}",
            partial(explain_table, self.d),
            self.skip_lines,
        )
        for batch in text_batches(self.path, form, with_labels=False):
            rows = np.arange(done, done + len(batch.x))
            done += len(batch.x)
            if done > expected:
                break
            if self.with_labels:
                batch.y = np.where(rows < self.signal, "signal", "background")
            yield batch
        if done != expected:
            raise UserError(
                f"{self.path}: the first line announces {self.signal} + {self.background} rows, "
                f"there are {'more' if done > expected else done}; fetch the file again"
            )
