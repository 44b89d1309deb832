"""Decision values of a stream of rows, for any number of models in one pass."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from bigsvm.core.errors import UserError
from bigsvm.core.labels import Classes, class_codes
from bigsvm.core.scaling import Scaling, effective_scaling
from bigsvm.kernels import Block, Kernel, block_of, products
from bigsvm.models.model import Model, not_in_float32
from bigsvm.readers.columns import reject_other_names
from bigsvm.stores.fingerprint import new_fingerprint, verify_recorded
from bigsvm.stores.rows import prefetch_map
from bigsvm.stores.store import Dataset, open_dataset

Spec = str | Path | Mapping[str, Any]


class Trained(Protocol):
    """What rows must match: a model, or the data set that one will be trained on."""

    @property
    def classes(self) -> Classes: ...

    @property
    def n_features(self) -> int: ...

    @property
    def feature_names(self) -> list[str] | None: ...

    @property
    def scaling(self) -> Scaling | None: ...


class LabelledChunk(NamedTuple):
    """Consecutive rows of an input, with the codes of their labels, if it has labels."""

    start: int
    x: np.ndarray
    codes: np.ndarray | None


class ScoredChunk(NamedTuple):
    """The decision values of a chunk: (models, rows), or (models, rows, classes) for more than two.

    `codes` are those of its labels.
    """

    start: int
    stop: int
    codes: np.ndarray | None
    decisions: np.ndarray


class Scorer:
    """Scores rows with one or more models of a training; shared support vectors are held once.

    The models may come from a generator, so that only one is in memory at a time. Sums run over the
    support vectors in the order of their index, and those that a model lacks contribute exactly 0:
    its decision values are the same bits alone or together with other models.
    """

    def __init__(self, models: Iterable[Model]) -> None:
        known = np.empty(0, np.int64)
        fresh_rows, weights, intercepts = [], [], []
        for model in models:
            self._kernel = Kernel(**model.kernel)
            fresh = ~np.isin(model.support_index, known)
            known = np.concatenate([known, model.support_index[fresh]])
            everything = bool(fresh.all())
            fresh_rows.append(model.support_vectors if everything else model.support_vectors[fresh])
            weights.append((model.support_index, model.columns))
            intercepts.append(model.shifts)
        order = np.argsort(known)
        if len(fresh_rows) == 1 and (np.diff(known) > 0).all():
            self._rows = fresh_rows[0]  # do not copy a single, large model
        else:
            self._rows = np.concatenate(fresh_rows)[order]
        self._intercepts = np.concatenate(intercepts)
        width = weights[0][1].shape[1]  # one, or the number of classes
        self._coef = np.zeros((len(known), len(weights), width))
        for place, (index, coef) in enumerate(weights):
            self._coef[np.searchsorted(known, index, sorter=order), place] = coef

    def decisions(self, block: Block) -> np.ndarray:
        """The decision values of scaled rows; see `ScoredChunk`."""
        known, models, width = self._coef.shape
        rows = block.stop - block.start
        coef = self._coef.reshape(known, models * width)
        out = np.repeat(self._intercepts[:, None], rows, axis=1)
        products(self._kernel, replace(block, start=0, stop=rows), self._rows, coef, out)
        return out if width == 1 else out.reshape(models, width, rows).transpose(0, 2, 1)


def score_chunks(
    scorer: Scorer, chunks: Iterator[LabelledChunk], where: str, scaling: Scaling | None = None
) -> Iterator[ScoredChunk]:
    """Score all chunks; the next one is read in the background.

    Parameters
    ----------
    scorer : Scorer
    chunks : iterator
        Advanced from a second thread.
    where : str
        The name of the input, for messages.
    scaling : Scaling, optional
        Applied to the rows; None if they are scaled already.
    """

    scaled = scale_chunks(chunks, where, scaling)

    def next_block(_: None) -> tuple[np.ndarray | None, Block] | None:
        chunk = next(scaled, None)
        return None if chunk is None else (chunk.codes, block_of(chunk.x, chunk.start))

    for found in prefetch_map(next_block, repeat(None)):
        if found is None:
            return
        codes, block = found
        decisions = scorer.decisions(block)
        check_finite(decisions, block.start, where)
        yield ScoredChunk(block.start, block.stop, codes, decisions)


def scale_chunks(
    chunks: Iterator[LabelledChunk], where: str, scaling: Scaling | None
) -> Iterator[LabelledChunk]:
    """Scale chunks and check that they are finite; see `score_chunks`."""
    for chunk in chunks:
        x = scaling.apply(chunk.x) if scaling else chunk.x
        _check_rows(x, chunk, where)
        yield chunk._replace(x=x)


def check_finite(decisions: np.ndarray, start: int, where: str) -> None:
    """Raise a UserError for decision values (model, row) that are not finite."""
    if not np.isfinite(decisions).all():
        row = start + int(np.argwhere(~np.isfinite(decisions))[0, 1])
        raise UserError(
            f"{where}: the decision value of row {row} (counted from 0) is not finite; "
            "is it much further out than the training data?"
        )


def chunks_of(dataset: Dataset, *, with_labels: bool = True) -> Iterator[LabelledChunk]:
    """The rows of a data set in chunks; at the end their fingerprint is verified."""
    digest = new_fingerprint(dataset.n, dataset.d)
    start = 0
    for rows in prefetch_map(lambda span: dataset.read(*span), dataset.spans(), dataset.n_readers):
        stop = start + len(rows)
        digest.update(rows)
        yield LabelledChunk(start, rows, dataset.codes(start, stop) if with_labels else None)
        start = stop
    if with_labels:  # the fingerprint includes the labels
        verify_recorded(dataset, digest)


def open_test_set(spec: Spec, model: Trained) -> Dataset:
    """Open a test set; a UserError if classes, features or scaling differ from the model's."""
    dataset = open_dataset(spec, "test", classes=model.classes)
    try:
        check_features_of(dataset, model)
        if effective_scaling(dataset.scaling) != effective_scaling(model.scaling):
            raise scaling_mismatch(model, dataset)
    except BaseException:
        dataset.close()
        raise
    return dataset


def places_of_codes(codes: np.ndarray, classes: Classes) -> np.ndarray:
    """The positions in `classes` for the codes of labels."""
    return np.searchsorted(class_codes(classes), codes)


def _check_rows(x: np.ndarray, chunk: LabelledChunk, where: str) -> None:
    if place := not_in_float32(x):
        row, column = place
        raise UserError(
            f"{where}: row {chunk.start + row}, column {column} (counted from 0): "
            f"{chunk.x[row, column]:g} is not a finite number, or not in float32 once scaled"
        )


def check_features(model: Trained, features: int, where: str, advice: str = "") -> None:
    """Raise a UserError for rows with another number of features than the model."""
    if features != model.n_features:
        raise UserError(
            f"{where}: has {features} features where the model has {model.n_features}"
            + (advice or "; it needs exactly the columns of its training data")
        )


def check_features_of(dataset: Dataset, model: Trained) -> None:
    """Raise a UserError if number or names of the features differ from the model's."""
    check_features(model, dataset.d, dataset.path)
    reject_other_names(
        dataset.feature_names,
        model.feature_names,
        dataset.path,
        "the model",
        "use data prepared together with the model's training data, or predict the raw file",
    )


def scaling_mismatch(model: Trained, dataset: Dataset) -> UserError:
    """The error for data that was scaled differently from the model's."""
    ours, theirs = effective_scaling(model.scaling), effective_scaling(dataset.scaling)
    detail = ""
    if (
        ours
        and theirs
        and _describe(ours) == _describe(theirs)
        and ours.offset.shape == theirs.offset.shape
    ):
        differs = (ours.offset != theirs.offset) | (ours.scale != theirs.scale)
        k = int(differs.argmax())
        detail = (
            f" (feature {k + 1}: offset {theirs.offset[k]:.9g}, scale {theirs.scale[k]:.9g} "
            f"against {ours.offset[k]:.9g}, {ours.scale[k]:.9g})"
        )
    return UserError(
        f"{dataset.path}: its scaling, {_describe(theirs)}, is not that of the model, "
        f"{_describe(ours)}{detail}; use data prepared together with the model's training data"
    )


def _describe(scaling: Scaling | None) -> str:
    if scaling is None:
        return "none"
    return scaling.kind + ("" if scaling.clip is None else f" clipped to {scaling.clip:g}")
