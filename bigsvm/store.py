"""A data set on disk, Zarr or HDF5, read a span of rows at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from bigsvm.errors import UserError
from bigsvm.labels import (
    REST,
    Classes,
    Label,
    choose_classes,
    codes_of,
    distinct,
    place_of,
    to_codes,
)
from bigsvm.packed_chunks import packed_chunks_of
from bigsvm.plain_rows import plain_rows_of
from bigsvm.prefetch import prefetched
from bigsvm.scaling import Scaling
from bigsvm.store_place import Place, array, attributes, damage_named, open_place
from bigsvm.weights import digest_of

CHUNK_BYTES = 8 * 2**20
LABELS_AT_A_TIME = 2**20
# Rows on their way from a file to the kernels at once: they stay in the second-level cache.
PIECE_BYTES = 512 * 1024
# Of so many rows or more, a single one is read by itself where the file allows it.
_FEW = 50
MAPPING_KEYS = ("path", "x", "y", "positive")
# What a prepared store of more than two classes says of itself; those of two say nothing.
VERSION, MANY_CLASSES = "bigsvm_format", "bigsvm store 2"
# The array of weights that `prepare` writes, and what tells whether they are still those.
WEIGHT, WEIGHT_DIGEST = "weight", "weight_digest"


def rows_of_about(size: int, d: int, itemsize: int = 4) -> int:
    """How many rows of d values make about `size` bytes; at least one."""
    return max(1, size // (d * itemsize))


class Dataset:
    """Rows and labels of one data set; read-only and lazy. Made by `open_dataset`.

    Attributes
    ----------
    n, d : int
        Number of rows and of features.
    path : str
        For messages.
    chunk_rows : int
        Rows to read at a time: the stored chunk; about 8 MiB where an array of the user's own is
        not chunked, or in so small chunks that reading them one by one would crawl.
    stored_chunk_bytes : int
        What has to be decoded at once to read a single row.
    readers : int
        How many chunks are best read at once: a remote server takes its time, a disk a core.
    scaling, feature_names, source, prepare_options, parts, recorded_fingerprint
        As `prepare` recorded them; None or empty in arrays of the user's own.
    """

    def __init__(
        self, place: Place, x: Any, y: Any | None, about: Mapping[str, Any], where: str
    ) -> None:
        self._place = place
        self._x = x
        self._y = y
        self._labels: np.ndarray | None = None
        self._checksums: dict[tuple[int, int], int] = {}
        self._classes: Classes | None = None
        prepared = "fingerprint" in about and "classes" in about
        self.path = where
        self.n, self.d = (int(size) for size in x.shape)
        chunks = x.chunks or (rows_of_about(CHUNK_BYTES, self.d), self.d)
        stored_rows = min(int(chunks[0]), self.n)
        self.stored_chunk_bytes = stored_rows * self.d * x.dtype.itemsize
        together = 1 if prepared else max(1, CHUNK_BYTES // (stored_rows * self.d * 4))
        self.chunk_rows = min(stored_rows * together, self.n)
        of_32_mib = 4 * CHUNK_BYTES // (4 * self.chunk_rows * self.d)
        self.readers = max(2, min(8, of_32_mib)) if place.remote else 2
        self._plain = None if place.remote else plain_rows_of(x)
        self._packed = None if place.remote else packed_chunks_of(x)
        self.recorded_fingerprint: str | None = about.get("fingerprint") if prepared else None
        self._weight_digest: str | None = about.get(WEIGHT_DIGEST)
        self.feature_names: list[str] | None = about.get("feature_names")
        self.source: str = about.get("source", "")
        self.parts: list[str] | None = about.get("parts")
        self.prepare_options: dict[str, Any] = about.get("prepare") or {}
        scaling = about.get("scaling")
        self.scaling: Scaling | None = Scaling.from_json(scaling) if scaling else None
        # What is stored, and the codes that are made of it: see `_find_classes`.
        self._stored: Classes | None = _stored_classes(about, where) if prepared else None
        self._made_of_stored: np.ndarray | None = None
        self._classes = self._stored

    @property
    def classes(self) -> Classes:
        """The original labels: of -1 and of +1, or where there are more, of 0, 1, 2, ..."""
        if self._classes is None:
            raise UserError(f"{self.path}: was opened without labels")
        return self._classes

    @property
    def has_labels(self) -> bool:
        """Whether it was opened with labels."""
        return self._y is not None

    @property
    def has_weights(self) -> bool:
        """Whether `prepare` has stored a weight for each row."""
        return self._weight_digest is not None

    @property
    def n_features(self) -> int:
        """d, by the name a model has for it."""
        return self.d

    def read(self, start: int, stop: int, space: np.ndarray | None = None) -> np.ndarray:
        """Rows start to stop, a C-contiguous (stop - start, d) float32 array.

        It may be the first rows of `space`, if that is given: fresh memory is slow at first touch.
        """
        if not 0 <= start <= stop <= self.n:
            raise IndexError(f"rows {start} to {stop} of {self.path}, which has {self.n}")
        with damage_named(f"{self.path}, rows {start} to {stop}"):
            rows = self._read(start, stop, space)
        if (start, stop) in self._checksums:
            self._check(start, stop, _checksum(rows))
        return rows

    def read_panels(
        self, start: int, stop: int, panels: np.ndarray, space: np.ndarray
    ) -> np.ndarray:
        """Rows start to stop laid out as panels, in the first of `panels`.

        Where the file allows it they come in pieces that stay in the processor's cache from the
        file to the panel: through main memory it takes twice as long. `space` holds them meanwhile.
        """
        from bigsvm.checksum import Checksum  # compiled code: not before it is wanted
        from bigsvm.kernels import LANES, fill_panels

        panels = panels[: -(-(stop - start) // LANES)]
        panels[-1] = 0.0
        piece = max(1, PIECE_BYTES // (4 * self.d * LANES)) * LANES
        at_once = stop - start if self._plain is None else piece
        found = Checksum()
        with damage_named(f"{self.path}, rows {start} to {stop}"):
            for begin in range(start, stop, at_once):
                rows = self._read(begin, min(begin + at_once, stop), space)
                for first in range(0, len(rows), piece):
                    some = rows[first : first + piece]
                    found.add(some)
                    fill_panels(some, panels[(begin - start + first) // LANES :])
        self._check(start, stop, found.value)
        return panels

    def _check(self, start: int, stop: int, found: int) -> None:
        if self._checksums.get((start, stop), found) != found:
            raise UserError(
                f"{self.path}: rows {start} to {stop} are not what they were when this began; "
                "leave the data alone while it is in use"
            )

    def _read(self, start: int, stop: int, space: np.ndarray | None) -> np.ndarray:
        if self._plain is not None:
            count = stop - start
            out = np.empty((count, self.d), np.float32) if space is None else space[:count]
            if self._plain.read(start, out):
                return out
        if self._packed is not None:
            unpacked = self._packed.read(start, stop, space)
            if unpacked is not None:
                return unpacked
        block = self._x[start:stop]
        with np.errstate(over="ignore"):  # infinities are found, and named, by `fingerprint`
            return np.ascontiguousarray(block, dtype=np.float32)

    def remember(self, start: int, stop: int, rows: np.ndarray) -> None:
        """From now on, `read` of this very span must give these rows."""
        self._checksums[start, stop] = _checksum(rows)

    @property
    def remembered(self) -> dict[tuple[int, int], int]:
        """Checksums of the spans that `remember` was told, for another process to `expect`."""
        return dict(self._checksums)

    def expect(self, remembered: Mapping[tuple[int, int], int]) -> None:
        """Hold `read` to what another process has seen here."""
        self._checksums.update(remembered)

    def labels(self) -> np.ndarray:
        """All labels as (n,) codes: -1 and +1 (int8), or of more than two classes 0, 1, 2, ...

        The array is shared, so it is read-only.
        """
        if self._labels is None:
            parts = [self.codes(start, stop) for start, stop in self._label_spans()]
            self._labels = np.concatenate(parts)
            self._labels.setflags(write=False)
        return self._labels

    def codes(self, start: int, stop: int) -> np.ndarray:
        """The codes of the classes of rows start to stop, read now and not kept."""
        if self._y is None:
            raise UserError(f"{self.path}: was opened without labels")
        if self._stored is None:
            found = _read_labels(self._y, start, stop, self.path)
            return to_codes(found, self.classes, self.path)
        codes = self._stored_codes(start, stop)
        if self._made_of_stored is None:
            return codes
        return self._made_of_stored[np.searchsorted(codes_of(self._stored), codes)]

    def _stored_codes(self, start: int, stop: int) -> np.ndarray:
        """As `prepare` wrote them."""
        assert self._stored is not None
        known = codes_of(self._stored)
        found = _read_labels(self._y, start, stop, self.path)
        codes = np.asarray(found, dtype=known.dtype)
        if wrong := np.flatnonzero(~np.isin(found, known)).tolist():
            what = "neither -1 nor +1" if len(known) == 2 else f"not from 0 to {known[-1]}"
            raise UserError(
                f"{self.path}: label {found[wrong[0]]} in row {start + wrong[0]} (counted from 0) "
                f"is {what}; the store is damaged, make it again"
            )
        return codes

    def numbers(self, name: str) -> np.ndarray:
        """All of the array `name` beside the rows, (n,) numbers: weights, for instance."""
        found = array(self._place, name)
        if tuple(found.shape) not in ((self.n,), (self.n, 1)) or found.dtype.kind not in "fiub":
            raise UserError(
                f"{self._place.path}: {name} holds {found.dtype} of shape {tuple(found.shape)}; a "
                f"number for each of the {self.n} rows is needed"
            )
        with damage_named(f"{self._place.path}, {name}"):
            values = np.asarray(found[:]).reshape(-1)
        if name == WEIGHT and self._weight_digest not in (None, digest_of(values)):
            raise UserError(
                f"{self.path}: {name} is not what was written; the store is damaged, make it again"
            )
        return values

    def check_written(self, digest: Any) -> None:
        """Refuse rows that are not those once written; `digest` has been fed all of them."""
        if self.recorded_fingerprint is None:
            return
        for start, stop in self._label_spans():
            digest.update(self._stored_codes(start, stop))
        if digest.hexdigest() != self.recorded_fingerprint:
            raise UserError(
                f"{self.path}: its content is not what was written (fingerprint "
                f"{digest.hexdigest()[:12]}, recorded {self.recorded_fingerprint[:12]}); the store "
                "is damaged, make it again"
            )

    def spans(self) -> Iterator[tuple[int, int]]:
        """Consecutive (start, stop) that cover all rows, a chunk each."""
        for start in range(0, self.n, self.chunk_rows):
            yield start, min(start + self.chunk_rows, self.n)

    def gather(
        self, indices: np.ndarray, out: np.ndarray | None = None, at: np.ndarray | None = None
    ) -> np.ndarray:
        """The rows `indices` in the order asked, (q, d) float32; each chunk is read once.

        With `out` they are written there, to the rows `at` of it.
        """
        indices = np.asarray(indices, dtype=np.int64)
        rows = np.empty((len(indices), self.d), dtype=np.float32) if out is None else out
        if len(indices) == 0:
            return rows
        order = np.argsort(indices, kind="stable")
        ordered = indices[order]
        if ordered[0] < 0 or ordered[-1] >= self.n:
            raise IndexError(f"row {ordered[0]} or {ordered[-1]} of {self.path}: it has {self.n}")
        edges = np.flatnonzero(np.diff(ordered // self.chunk_rows)) + 1
        order = order if at is None else at[order]
        spans = list(zip(np.split(ordered, edges), np.split(order, edges), strict=True))

        def pick(span: tuple[np.ndarray, np.ndarray]) -> None:
            wanted, places = span
            first, stop = int(wanted[0]), int(wanted[-1]) + 1
            if self._plain is not None and _FEW * len(wanted) < stop - first:
                picked = np.empty((len(wanted), self.d), np.float32)
                if self._plain.pick(wanted, picked):
                    rows[places] = picked
                    return
            chunk = first // self.chunk_rows * self.chunk_rows
            if (whole := (chunk, min(chunk + self.chunk_rows, self.n))) in self._checksums:
                first, stop = whole  # which can be checked
            block = self.read(first, stop)
            for some in range(0, len(wanted), few := rows_of_about(PIECE_BYTES, self.d)):
                # Of all at once there would be a copy in between, as large as the chunk.
                rows[places[some : some + few]] = block[wanted[some : some + few] - first]

        for _ in prefetched(pick, spans, self.readers):
            pass
        return rows

    def check_again(self, indices: np.ndarray) -> None:
        """Refuse rows that are not what they were when this began.

        Those that `gather` picks one by one are not checked there. Whatever a solver does with them
        ends in a pass, which reads and checks all that is not in memory; a model does not.
        """
        if self._plain is None:
            return
        chunks = np.unique(np.asarray(indices) // self.chunk_rows) * self.chunk_rows
        spans = [(start, min(start + self.chunk_rows, self.n)) for start in chunks.tolist()]
        for _ in prefetched(lambda span: self.read(*span), spans, self.readers):
            pass

    def close(self) -> None:
        """Let go of the file."""
        self._plain = None  # it knows the file by its number, which may soon be another's
        self._place.close()

    def __enter__(self) -> Dataset:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _find_classes(self, positive: Label | None, classes: Classes | None) -> None:
        """Settle which original label has which code."""
        if self._stored is not None:
            if positive is not None and classes is None:
                classes = choose_classes(self._stored, positive, self.path)
            if classes is not None:
                self._classes = classes
                self._made_of_stored = self._codes_made_of_stored(classes)
            return
        if classes is None:
            values: set[Label] = set()
            for start, stop in self._label_spans():
                part = _read_labels(self._y, start, stop, self.path)
                values.update(distinct(part, self.path).values())
            classes = choose_classes(values, positive, self.path, self.n)
        self._classes = classes
        for start, stop in self._label_spans():
            self.codes(start, stop)  # a label of no class is better known now

    def _codes_made_of_stored(self, classes: Classes) -> np.ndarray:
        """The code among `classes` of each class that is stored."""
        assert self._stored is not None
        try:
            if REST in self._stored and set(self._stored) != set(classes):
                raise UserError("nobody knows what is in that rest")
            places = [place_of(label, classes, self.path) for label in self._stored]
        except UserError as stranger:
            raise UserError(
                f"{self.path}: its classes {self._stored} are not {classes}, those of the "
                "model; choose data with the same classes"
            ) from stranger
        return codes_of(classes)[places]

    def _label_spans(self) -> Iterator[tuple[int, int]]:
        for start in range(0, self.n, LABELS_AT_A_TIME):
            yield start, min(start + LABELS_AT_A_TIME, self.n)


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
    with damage_named(str(options["path"])):
        return _open(options, names, part, classes, with_labels)


def _open(
    options: Mapping[str, Any],
    names: tuple[str, str],
    part: str,
    classes: Classes | None,
    with_labels: bool,
) -> Dataset:
    place = open_place(options["path"])
    try:
        if names[0] not in place.group and part in place.group:
            place = place.inside(part)
        x = array(place, names[0])
        if x.ndim != 2:
            raise UserError(f"{place.path}: {names[0]} has shape {x.shape}, not (rows, features)")
        if 0 in x.shape:
            raise UserError(f"{place.path}: {names[0]} is empty, its shape is {x.shape}")
        if x.dtype.kind not in "fiub":
            raise UserError(f"{place.path}: {names[0]} holds {x.dtype}, not real numbers")
        y = array(place, names[1]) if with_labels else None
        if y is not None and tuple(y.shape) not in ((x.shape[0],), (x.shape[0], 1)):
            raise UserError(
                f"{place.path}: {names[1]} has shape {y.shape} where {names[0]} has "
                f"{x.shape[0]} rows; a label a row is needed"
            )
        usual = names == ("X", "y")
        where = place.path if usual else f"{place.path}/{names[0]}"
        dataset = Dataset(place, x, y, attributes(place) if usual else {}, where)
        if with_labels:
            dataset._find_classes(options.get("positive"), classes)
        return dataset
    except BaseException:
        place.close()
        raise


def fingerprint(dataset: Dataset) -> str:
    """SHA-256 of the content, whatever the chunks and the format; one pass over the data.

    A value that is not finite is an error that names its row and column.
    """
    digest = _digest_of_rows(dataset)
    digest.update(dataset.labels())
    return digest.hexdigest()


def part_for_testing(spec: Mapping[str, Any]) -> str:
    """The part of a store to predict where none is named: test, or else train."""
    with damage_named(str(spec["path"])):
        place = open_place(spec["path"])
        try:
            return "test" if "test" in place.group else "train"
        finally:
            place.close()


def _digest_of_rows(dataset: Dataset) -> Any:
    digest = begin_fingerprint(dataset.n, dataset.d)
    for rows in checked_rows(dataset):
        digest.update(rows)
    return digest


def checked_rows(dataset: Dataset) -> Iterator[np.ndarray]:
    """All rows, a chunk at a time, if they are finite; read again, they must be the same."""
    start = 0
    for rows in prefetched(lambda span: dataset.read(*span), dataset.spans(), dataset.readers):
        finite = np.isfinite(rows)
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            what = f"is {rows[row, column]} as float32; replace it or leave out the row"
            if dataset.recorded_fingerprint is not None:  # no such value was ever written
                what = "is missing; the store is damaged, or its copy is not complete"
            raise UserError(
                f"{dataset.path}: the value in row {start + row}, column {column} (counted from 0) "
                f"{what}"
            )
        dataset.remember(start, start + len(rows), rows)
        yield rows
        start += len(rows)


def verified_fingerprint(dataset: Dataset) -> str:
    """The fingerprint of what is there now; a UserError where something else was once written."""
    digest = _digest_of_rows(dataset)
    dataset.check_written(digest.copy())
    digest.update(dataset.labels())
    return digest.hexdigest()


def _stored_classes(about: Mapping[str, Any], where: str) -> Classes:
    """The classes of a prepared store."""
    classes = tuple(about["classes"])
    if len(classes) < 2:
        raise ValueError(f"classes {classes}")
    version = about.get(VERSION)
    if version != (MANY_CLASSES if len(classes) > 2 else None):
        raise UserError(
            f"{where}: is {version!r}, of another version of bigsvm; use it with that one, or make "
            "it again"
        )
    return classes


def begin_fingerprint(n: int, d: int) -> Any:
    """The hash to be fed all float32 rows in order, then the codes of all labels."""
    return hashlib.sha256(f"bigsvm data {n} {d}\n".encode())


def _read_labels(y: Any, start: int, stop: int, where: str) -> np.ndarray:
    with damage_named(f"{where}, labels"):
        return np.asarray(y[start:stop]).reshape(-1)


def _checksum(rows: np.ndarray) -> int:
    from bigsvm.checksum import checksum  # compiled code: not before it is wanted

    return checksum(rows)
