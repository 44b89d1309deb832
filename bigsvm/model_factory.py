"""Saving the models of a training, with no copy of all their support vectors in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.model import Intercept, Model, write_model

if TYPE_CHECKING:
    from bigsvm.backends import Backend
    from bigsvm.solvers.class_states import ClassStates
    from bigsvm.solvers.one_vs_rest import OneVsRest
    from bigsvm.solvers.problem import Problem
    from bigsvm.solvers.state import State
    from bigsvm.store import Dataset

_PIECE_BYTES = 2**20


class Gathered:
    """Rows of a training set, fetched in pieces: all support vectors may be more than fit."""

    dtype = np.dtype(np.float32)

    def __init__(self, backend: Backend, index: np.ndarray, chunk_rows: int) -> None:
        self._backend, self._index = backend, index
        self._chunk = index // chunk_rows  # ascending
        self.shape = (len(index), backend.d)

    def __iter__(self) -> Iterator[np.ndarray]:
        step = max(1, _PIECE_BYTES // (4 * self._backend.d))
        stop = 0
        while (start := stop) < len(self._index):
            last = min(start + step, len(self._index)) - 1
            # To the end of a chunk, so that none is read twice.
            stop = int(np.searchsorted(self._chunk, self._chunk[last], side="right"))
            yield self._backend.gather(self._index[start:stop])


class ModelFactory:
    """Saves the models of one training."""

    def __init__(
        self,
        dataset: Dataset,
        backend: Backend,
        kernel: Mapping[str, Any],
        about: Mapping[str, Any],
    ) -> None:
        self._dataset = dataset
        self._backend = backend
        self._kernel = kernel
        self._about = dict(about) | {
            "source": Path(dataset.source).name,
            "feature_names": dataset.feature_names,
            "n_train": dataset.n,
        }

    def save(self, state: State | ClassStates, problem: Problem | OneVsRest, path: Path) -> None:
        """Write the model at `state`, an iterate of `problem`."""
        support, coef = problem.coefficients(state)  # type: ignore[arg-type]
        model = Model(
            np.empty((0, self._backend.d), np.float32),
            coef,
            support,
            self._kernel,
            self._dataset.classes,
            self._dataset.scaling,
            self._about | {"iteration": state.iteration, "n_working": state.n_working},
            _shift(problem.intercept * coef.sum(axis=-1)),
        )
        write_model(model, Gathered(self._backend, support, self._dataset.chunk_rows), path)


def _shift(total: np.ndarray) -> Intercept:
    """As a model holds it: a number, or one for each class where there is any."""
    if total.ndim == 0:
        return float(total)
    return tuple(total.tolist()) if total.any() else 0.0
