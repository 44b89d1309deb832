"""A data set on disk, Zarr or HDF5, read a span of rows at a time."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from bigsvm.core.errors import UserError
from bigsvm.core.labels import Classes
from bigsvm.core.scaling import Scaling
from bigsvm.core.weights import weights_digest
from bigsvm.stores.codecs import NUMERIC_KINDS, is_text
from bigsvm.stores.group import (
    StoreGroup,
    open_array,
    open_group,
    read_attributes,
    wrap_read_errors,
)
from bigsvm.stores.labels import StoredLabels, recorded_classes
from bigsvm.stores.rows import StoredRows

_REQUESTS = 32  # to a server at a time
MAPPING_KEYS = ("path", "x", "y", "positive")
# The array of weights that `prepare` writes, and what tells whether they are still those.
WEIGHT, WEIGHT_DIGEST = "weight", "weight_digest"


class Dataset(StoredRows):
    """Rows and labels of one data set; read-only and lazy. Made by `open_dataset`.

    Attributes
    ----------
    scaling, feature_names, source, files, prepare_options, parts, recorded_fingerprint
        As `prepare` recorded them; None or empty in arrays of the user's own.
    """

    def __init__(
        self, place: StoreGroup, x: Any, y: Any | None, about: Mapping[str, Any], where: str
    ) -> None:
        prepared = "fingerprint" in about and "classes" in about
        super().__init__(x, where, remote=place.remote, prepared=prepared)
        self._place = place
        self.recorded_fingerprint: str | None = about.get("fingerprint") if prepared else None
        self._weight_digest: str | None = about.get(WEIGHT_DIGEST)
        self.feature_names: list[str] | None = about.get("feature_names") if prepared else None
        self.source: str = about.get("source", "")
        self.files: dict[str, str] = about.get("files") or {}
        self.parts: list[str] | None = about.get("parts")
        self.prepare_options: dict[str, Any] = about.get("prepare") or {}
        scaling = about.get("scaling")
        self.scaling: Scaling | None = Scaling.from_json(scaling) if scaling else None
        stored = recorded_classes(about, where) if prepared else None
        self._labels = StoredLabels(y, self.n, where, stored)
        self._arrays = {"rows": x} if y is None else {"rows": x, "labels": y}

    @property
    def classes(self) -> Classes:
        """The original labels: of -1 and of +1, or where there are more, of 0, 1, 2, ..."""
        return self._labels.classes

    @property
    def has_labels(self) -> bool:
        """Whether it was opened with labels."""
        return self._labels.there

    @property
    def has_weights(self) -> bool:
        """Whether `prepare` has stored a weight for each row."""
        return self._weight_digest is not None

    @property
    def n_features(self) -> int:
        """d, by the name a model has for it."""
        return self.d

    def labels(self) -> np.ndarray:
        """All labels as (n,) codes: -1 and +1 (int8), or of more than two classes 0, 1, 2, ...

        The array is shared, so it is read-only.
        """
        return self._labels.all()

    def codes(self, start: int, stop: int) -> np.ndarray:
        """The codes of the classes of rows start to stop, read now and not kept."""
        return self._labels.codes(start, stop)

    def recorded_codes(self) -> Iterator[np.ndarray]:
        """The codes that `prepare` wrote, many rows at a time."""
        return self._labels.as_written()

    def numbers(self, name: str) -> np.ndarray:
        """All of the array `name` beside the rows, (n,) numbers: weights, for instance."""
        found = open_array(self._place, name)
        if (
            tuple(found.shape) not in ((self.n,), (self.n, 1))
            or found.dtype.kind not in NUMERIC_KINDS
        ):
            raise UserError(
                f"{self._place.path}: {name} holds {found.dtype} of shape {tuple(found.shape)}; a "
                f"number for each of the {self.n} rows is needed"
            )
        with wrap_read_errors(f"{self._place.path}, {name}"):
            values = np.asarray(found[:]).reshape(-1)
        if name == WEIGHT and self._weight_digest not in (None, weights_digest(values)):
            raise UserError(
                f"{self.path}: {name} is not what was written; the store is damaged, make it again"
            )
        return values

    def missing_chunk_warnings(self) -> list[str]:
        """A line for each array some chunks of which are not stored; see `missing_chunks`."""
        if self.recorded_fingerprint is not None:
            return []  # it is checked against what was written
        lines = []
        for what, found in self._arrays.items():
            with wrap_read_errors(self.path):
                absent, expected = missing_chunks(found)
            if absent:
                lines.append(
                    f"{self.path}: {absent:,} of {expected:,} chunks of the {what} are absent and "
                    f"are read as {_fill_value(found)}; check that the copy is complete"
                )
        return lines

    def close(self) -> None:
        """Let go of the file."""
        self.release_file()
        self._place.close()

    def __enter__(self) -> Dataset:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _fill_value(array: Any) -> Any:
    value = getattr(array, "fill_value", None)
    if value is None:
        value = getattr(array, "fillvalue", None)  # as HDF5 calls it
    return value.item() if isinstance(value, np.generic) else value


def open_dataset(
    spec: str | Path | Mapping[str, Any],
    part: str = "train",
    *,
    classes: Classes | None = None,
    with_labels: bool = True,
) -> Dataset:
    """Open a data set for reading.

    Parameters
    ----------
    spec : path or mapping
        A store ("s.zarr", "s.h5"), a group in one ("s.zarr/train", "s.h5/train"), the address of a
        Zarr store or group ("s3://bucket/s.zarr/train"), or a mapping for arrays of the user's own:
        ``{path: mine.h5, x: features, y: labels, positive: 1}``.
    part : str
        The sub-group to use where the opened group has no arrays itself.
    classes : tuple of labels, optional
        Map labels to these (a test set to the classes of a model) instead of finding them.
    with_labels : bool
        Without, `y` need not exist and only the rows can be read.

    Returns
    -------
    Dataset
        To be closed again, or used in a `with` block.
    """
    options: dict[str, Any] = dict(spec) if isinstance(spec, Mapping) else {"path": spec}
    for key in options:
        if key not in MAPPING_KEYS:
            raise UserError(
                f"data set key {key!r} is not known; the keys are {', '.join(MAPPING_KEYS)}"
            )
    if not options.get("path"):
        raise UserError("a data set needs a `path`")
    names = (str(options.get("x") or "X"), str(options.get("y") or "y"))
    with wrap_read_errors(str(options["path"])):
        return _open(options, names, part, classes, with_labels)


def _open(
    options: Mapping[str, Any],
    names: tuple[str, str],
    part: str,
    classes: Classes | None,
    with_labels: bool,
) -> Dataset:
    place = open_group(options["path"])
    try:
        if names[0] not in place and part in place:
            place = place.inside(part)
        x = open_array(place, names[0])
        if x.ndim != 2:
            raise UserError(f"{place.path}: {names[0]} has shape {x.shape}, not (rows, features)")
        if 0 in x.shape:
            raise UserError(f"{place.path}: {names[0]} is empty, its shape is {x.shape}")
        if x.dtype.kind not in NUMERIC_KINDS:
            raise UserError(f"{place.path}: {names[0]} holds {x.dtype}, not real numbers")
        y = open_array(place, names[1]) if with_labels else None
        if y is not None and y.dtype.kind not in NUMERIC_KINDS and not is_text(y):
            raise UserError(f"{place.path}: {names[1]} holds {y.dtype}; labels are numbers or text")
        if y is not None and tuple(y.shape) not in ((x.shape[0],), (x.shape[0], 1)):
            raise UserError(
                f"{place.path}: {names[1]} has shape {y.shape} where {names[0]} has "
                f"{x.shape[0]} rows; a label a row is needed"
            )
        usual = names == ("X", "y")
        where = place.path if usual else f"{place.path}/{names[0]}"
        dataset = Dataset(place, x, y, read_attributes(place) if usual else {}, where)
        if with_labels:
            dataset._labels.settle(options.get("positive"), classes)
        return dataset
    except BaseException:
        place.close()
        raise


def part_to_predict(spec: Mapping[str, Any]) -> str:
    """The part of a store to predict where none is named: test, or else train."""
    with wrap_read_errors(str(spec["path"])):
        place = open_group(spec["path"])
        try:
            return "test" if "test" in place else "train"
        finally:
            place.close()


def missing_chunks(array: Any) -> tuple[int, int]:
    """How many chunks of an array are not there, and how many it should have."""
    if hasattr(array, "metadata"):
        return _in_zarr(array)
    if array.chunks is None or array.is_virtual:
        return 0, 1
    expected = math.prod(_steps(array.shape, array.chunks))
    return expected - array.id.get_num_chunks(), expected


def _in_zarr(array: Any) -> tuple[int, int]:
    from zarr.core.sync import sync
    from zarr.storage import LocalStore

    # Of a sharded array this is the grid of its shards: those are the files.
    steps = _steps(array.shape, array.metadata.chunk_grid.chunk_shape)
    key = array.metadata.encode_chunk_key
    places = product(*map(range, steps))
    if isinstance(array.store, LocalStore):
        folder = Path(array.store.root) / array.path
        present = sum((folder / key(place)).exists() for place in places)
    else:
        # Not every server lists what it has, so that it is asked for each: far less than what
        # reading them takes.
        folder_key = f"{array.path}/" if array.path else ""
        present = sync(_count(array.store, [folder_key + key(place) for place in places]))
    expected = math.prod(steps)
    return expected - present, expected


async def _count(store: Any, keys: list[str]) -> int:
    """How many of the keys are there."""
    asking = asyncio.Semaphore(_REQUESTS)

    async def is_there(key: str) -> bool:
        async with asking:
            return bool(await store.exists(key))

    return sum(await asyncio.gather(*map(is_there, keys)))


def _steps(shape: tuple[int, ...], chunks: tuple[int, ...]) -> list[int]:
    return [-(-size // step) for size, step in zip(shape, chunks, strict=True)]
