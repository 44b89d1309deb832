"""Writes the models of a training, streaming their support vectors to disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bigsvm.backends import Backend
from bigsvm.backends.products import GatheredRows
from bigsvm.core.arrays import RowChunks
from bigsvm.models.model import Intercept, Model, write_model
from bigsvm.solvers.joint import JointProblem, JointState
from bigsvm.stores.store import Dataset
from bigsvm.terminal.logs import LOGGER
from bigsvm.training.threshold import Rule, threshold_at

_CHUNK_BYTES = 2**20


class SnapshotWriter:
    """Writes snapshots and the final model of one training."""

    def __init__(
        self,
        dataset: Dataset,
        backend: Backend,
        kernel: Mapping[str, Any],
        about: Mapping[str, Any],
        threshold: Rule = "zero",
    ) -> None:
        self._dataset = dataset
        self._backend = backend
        self._kernel = kernel
        self._threshold = threshold
        self._about = dict(about) | {
            "source": Path(dataset.source).name,
            "feature_names": dataset.feature_names,
            "n_train": dataset.n,
            **({} if dataset.encoding is None else {"encoding": dataset.encoding}),
            **({} if dataset.label_column is None else {"label_column": dataset.label_column}),
        }

    def save(
        self,
        state: JointState,
        problem: JointProblem,
        path: Path,
        margin: float,
        is_last: bool = False,
        relative_gap: float | None = None,
    ) -> None:
        """Write the model at `state`, an iterate of `problem`, with its relative gap if converged.

        No pass follows the last model, so its rows are verified to be unchanged here.
        """
        support, coef = problem.coefficients(state)
        rule = self._threshold
        model = Model(
            np.empty((0, self._backend.d), np.float32),
            coef if problem.n_outputs > 1 else coef[0],
            support,
            self._kernel,
            self._dataset.classes,
            self._dataset.scaling,
            self._about
            | {"iteration": state.iteration, "n_working": state.n_working}
            | ({"margin": margin} if margin > 0 else {})  # rounding may have left none
            | ({} if relative_gap is None else {"relative_gap": relative_gap}),
            _as_intercept(problem.intercept * coef.sum(axis=-1)),
            0.0 if rule == "zero" else threshold_at(state.now(0), problem.classes[0], rule),
        )
        step = max(1, _CHUNK_BYTES // (4 * self._backend.d))
        rows: RowChunks = GatheredRows(self._backend, support, step, self._dataset.chunk_rows)
        write_model(model, _VerifiedRows(rows, self._dataset, support) if is_last else rows, path)
        LOGGER.debug("model: %s, %s support vectors", path, f"{len(support):,}")


class _VerifiedRows:
    """Rows that are verified to be unchanged once they have been written."""

    def __init__(self, rows: RowChunks, dataset: Dataset, index: np.ndarray) -> None:
        self.shape, self.dtype = rows.shape, rows.dtype
        self._rows, self._dataset, self._index = rows, dataset, index

    def __iter__(self) -> Iterator[np.ndarray]:
        yield from self._rows
        self._dataset.verify_unchanged(self._index)


def _as_intercept(total: np.ndarray) -> Intercept:
    """The intercept of a `Model`: one number, or one per class unless all are 0."""
    if len(total) == 1:
        return float(total[0])
    return tuple(total.tolist()) if total.any() else 0.0
