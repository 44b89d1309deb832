"""A data set on disk, Zarr or HDF5, read one span of rows at a time."""

from __future__ import annotations

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

_MAX_REQUESTS = 32  # concurrent requests to a server
MAPPING_KEYS = ("path", "x", "y", "positive")
# The array of weights that `prepare` writes, and the attribute with their digest.
WEIGHT, WEIGHT_DIGEST = "weight", "weight_digest"


class Dataset(StoredRows):
    """Rows and labels of one data set; read-only and lazy. Made by `open_dataset`.

    Attributes
    ----------
    scaling, feature_names, source, files, prepare_options, parts, recorded_fingerprint
        As `prepare` recorded them; None or empty for arrays of the user's own.
    """

    def __init__(
        self, group: StoreGroup, x: Any, y: Any | None, about: Mapping[str, Any], where: str
    ) -> None:
        prepared = "fingerprint" in about and "classes" in about
        super().__init__(x, where, remote=group.remote, prepared=prepared)
        self._group = group
        self.recorded_fingerprint: str | None = about.get("fingerprint") if prepared else None
        self._weight_digest: str | None = about.get(WEIGHT_DIGEST)
        self.feature_names: list[str] | None = about.get("feature_names") if prepared else None
        self.source: str = about.get("source", "")
        self.files: dict[str, str] = about.get("files") or {}
        self.parts: list[str] | None = about.get("parts")
        self.prepare_options: dict[str, Any] = about.get("prepare") or {}
        self.encoding: dict[str, Any] | None = about.get("encoding") if prepared else None
        self.label_column: str | None = about.get("label_column") if prepared else None
        scaling = about.get("scaling")
        self.scaling: Scaling | None = Scaling.from_json(scaling) if scaling else None
        recorded = recorded_classes(about, where) if prepared else None
        self._labels = StoredLabels(y, self.n, where, recorded)
        self._arrays = {"rows": x} if y is None else {"rows": x, "labels": y}

    @property
    def classes(self) -> Classes:
        """The original labels in the order of their codes: -1 and +1, or 0, 1, 2, ..."""
        return self._labels.classes

    @property
    def has_labels(self) -> bool:
        """Whether it was opened with labels."""
        return self._labels.present

    @property
    def has_weights(self) -> bool:
        """Whether `prepare` stored a weight for each row."""
        return self._weight_digest is not None

    @property
    def n_features(self) -> int:
        """d, under the name that models use."""
        return self.d

    def labels(self) -> np.ndarray:
        """All labels as (n,) class codes: -1 and +1 (int8), or 0, 1, 2, ... for more classes.

        The array is shared, and therefore read-only.
        """
        return self._labels.all()

    def codes(self, start: int, stop: int) -> np.ndarray:
        """The class codes of rows start to stop; read now and not kept."""
        return self._labels.codes(start, stop)

    def recorded_codes(self) -> Iterator[np.ndarray]:
        """Yield the codes that `prepare` wrote, many rows at a time."""
        return self._labels.recorded_codes()

    def read_vector(self, name: str) -> np.ndarray:
        """Read the whole array `name` that holds one number for each row, such as weights."""
        found = open_array(self._group, name)
        one_per_row = tuple(found.shape) in ((self.n,), (self.n, 1))
        if not one_per_row or found.dtype.kind not in NUMERIC_KINDS:
            raise UserError(
                f"{self._group.path}: {name} holds {found.dtype} of shape {tuple(found.shape)}; a "
                f"number for each of the {self.n} rows is needed"
            )
        with wrap_read_errors(f"{self._group.path}, {name}"):
            values = np.asarray(found[:]).reshape(-1)
        if name == WEIGHT and self._weight_digest not in (None, weights_digest(values)):
            raise UserError(
                f"{self.path}: {name} is not what was written; the store is damaged, make it again"
            )
        return values

    def missing_chunk_warnings(self) -> list[str]:
        """A line for each array with missing chunks; see `missing_chunks`."""
        if self.recorded_fingerprint is not None:
            return []  # the content is checked against the fingerprint
        lines = []
        for what, found in self._arrays.items():
            with wrap_read_errors(self.path):
                missing, expected = missing_chunks(found)
            if missing:
                lines.append(
                    f"{self.path}: {missing:,} of {expected:,} chunks of the {what} are missing "
                    f"and are read as {_fill_value(found)}; check that the copy is complete"
                )
        return lines

    def close(self) -> None:
        """Close the file."""
        self.release_file()
        self._group.close()

    def __enter__(self) -> Dataset:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


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
        A store ("s.zarr", "s.h5"), a group in one ("s.zarr/train", "s.h5/train"), the URL of a Zarr
        store or group ("s3://bucket/s.zarr/train"), or a mapping for arrays of the user's own:
        ``{path: mine.h5, x: features, y: labels, positive: 1}``.
    part : str
        The subgroup to use if the opened group has no arrays itself.
    classes : tuple of labels, optional
        Encode the labels by these classes, such as those of a model, instead of finding classes.
    with_labels : bool
        If False, `y` need not exist and only the rows can be read.

    Returns
    -------
    Dataset
        Close it after use, or use it in a `with` block.
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
    group = open_group(options["path"])
    try:
        if names[0] not in group and part in group:
            group = group.subgroup(part)
        x = open_array(group, names[0])
        if x.ndim != 2:
            raise UserError(f"{group.path}: {names[0]} has shape {x.shape}, not (rows, features)")
        if 0 in x.shape:
            raise UserError(f"{group.path}: {names[0]} is empty, its shape is {x.shape}")
        if x.dtype.kind not in NUMERIC_KINDS:
            raise UserError(f"{group.path}: {names[0]} holds {x.dtype}, not real numbers")
        y = open_array(group, names[1]) if with_labels else None
        if y is not None and y.dtype.kind not in NUMERIC_KINDS and not is_text(y):
            raise UserError(f"{group.path}: {names[1]} holds {y.dtype}; labels are numbers or text")
        if y is not None and tuple(y.shape) not in ((x.shape[0],), (x.shape[0], 1)):
            raise UserError(
                f"{group.path}: {names[1]} has shape {y.shape} where {names[0]} has "
                f"{x.shape[0]} rows; one label per row is needed"
            )
        default_names = names == ("X", "y")
        where = group.path if default_names else f"{group.path}/{names[0]}"
        dataset = Dataset(group, x, y, read_attributes(group) if default_names else {}, where)
        if with_labels:
            dataset._labels.resolve_classes(options.get("positive"), classes)
        return dataset
    except BaseException:
        group.close()
        raise


def part_to_predict(spec: Mapping[str, Any]) -> str:
    """The part of a store to predict if none is named: `test` if it exists, else `train`."""
    with wrap_read_errors(str(spec["path"])):
        group = open_group(spec["path"])
        try:
            return "test" if "test" in group else "train"
        finally:
            group.close()


def missing_chunks(array: Any) -> tuple[int, int]:
    """How many chunks of an array are not stored, and how many it should have.

    Both formats silently read a missing chunk as the fill value. That is how they omit chunks of
    zeros, but a chunk that was lost in copying looks the same. `prepare` writes every chunk.
    """
    if hasattr(array, "metadata"):
        return _missing_in_zarr(array)
    if array.chunks is None or array.is_virtual:
        return 0, 1
    expected = math.prod(_grid(array.shape, array.chunks))
    return expected - array.id.get_num_chunks(), expected


def _missing_in_zarr(array: Any) -> tuple[int, int]:
    from zarr.core.sync import sync
    from zarr.storage import LocalStore

    # For a sharded array this is the grid of its shards, which are the files.
    grid = _grid(array.shape, array.metadata.chunk_grid.chunk_shape)
    key = array.metadata.encode_chunk_key
    chunks = product(*map(range, grid))
    if isinstance(array.store, LocalStore):
        folder = Path(array.store.root) / array.path
        present = sum((folder / key(chunk)).exists() for chunk in chunks)
    else:
        # Not every server can list its contents, so each chunk is looked up: far less work than
        # reading it.
        prefix = f"{array.path}/" if array.path else ""
        present = sync(_count_keys(array.store, [prefix + key(chunk) for chunk in chunks]))
    expected = math.prod(grid)
    return expected - present, expected


async def _count_keys(store: Any, keys: list[str]) -> int:
    """How many of the keys exist."""
    import asyncio  # slow to import, and needed for remote stores only

    limit = asyncio.Semaphore(_MAX_REQUESTS)

    async def exists(key: str) -> bool:
        async with limit:
            return bool(await store.exists(key))

    return sum(await asyncio.gather(*map(exists, keys)))


def _grid(shape: tuple[int, ...], chunks: tuple[int, ...]) -> list[int]:
    return [-(-size // step) for size, step in zip(shape, chunks, strict=True)]


def _fill_value(array: Any) -> Any:
    value = getattr(array, "fill_value", None)
    if value is None:
        value = getattr(array, "fillvalue", None)  # the HDF5 name
    return value.item() if isinstance(value, np.generic) else value
