"""The fingerprint of a data set: a hash of its content, independent of chunks and format."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from bigsvm.core.errors import UserError
from bigsvm.stores.rows import prefetch_map
from bigsvm.stores.store import Dataset


def new_fingerprint(n: int, d: int) -> Any:
    """A hash to be updated with all float32 rows in order, then with all class codes."""
    return hashlib.sha256(f"bigsvm data {n} {d}\n".encode())


def verified_fingerprint(dataset: Dataset) -> str:
    """SHA-256 of the content, in one pass over the data.

    Raises UserError for a value that is not finite, with row and column, and for a content that
    `prepare` has not written.
    """
    digest = new_fingerprint(dataset.n, dataset.d)
    for rows in finite_chunks(dataset):
        digest.update(rows)
    verify_recorded(dataset, digest.copy())
    digest.update(dataset.labels())
    return digest.hexdigest()


def verify_recorded(dataset: Dataset, digest: Any) -> None:
    """Raise UserError unless `digest`, updated with all rows, leads to the recorded fingerprint."""
    if dataset.recorded_fingerprint is None:
        return
    for codes in dataset.recorded_codes():
        digest.update(codes)
    if digest.hexdigest() != dataset.recorded_fingerprint:
        raise UserError(
            f"{dataset.path}: its content is not what was written (fingerprint "
            f"{digest.hexdigest()[:12]}, recorded {dataset.recorded_fingerprint[:12]}); the store "
            "is damaged, make it again"
        )


def finite_chunks(dataset: Dataset) -> Iterator[np.ndarray]:
    """Yield all rows by chunks, checked to be finite, and record the checksum of each chunk."""
    start = 0
    for rows in prefetch_map(lambda span: dataset.read(*span), dataset.spans(), dataset.n_readers):
        finite = np.isfinite(rows)
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            what = f"is {rows[row, column]} as float32; replace it or leave out the row"
            if dataset.recorded_fingerprint is not None:  # `prepare` writes finite values only
                what = "is missing; the store is damaged, or its copy is not complete"
            raise UserError(
                f"{dataset.path}: the value in row {start + row}, column {column} (counted from 0) "
                f"{what}"
            )
        dataset.record_checksum(start, start + len(rows), rows)
        yield rows
        start += len(rows)
