"""The input of `predict`: a store, or a file of raw rows."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from bigsvm.core.errors import UserError
from bigsvm.core.labels import Classes, encode_labels
from bigsvm.core.messages import quoted
from bigsvm.core.scaling import Scaling, effective_scaling
from bigsvm.core.urls import is_url
from bigsvm.models.model import Model
from bigsvm.models.named_rows import check_names
from bigsvm.models.scoring import (
    LabelledChunk,
    check_features,
    check_features_of,
    chunks_of,
    scaling_mismatch,
)
from bigsvm.readers import Reader, ReadOptions, open_reader
from bigsvm.readers.arrow_batches import NamedTable, is_arrow, open_named_table
from bigsvm.readers.chosen_columns import ChosenColumns
from bigsvm.readers.columns import column_position, match_features
from bigsvm.readers.detect import detect_format
from bigsvm.stores.group import open_group, wrap_read_errors
from bigsvm.stores.store import open_dataset
from bigsvm.tables.encoding import Encoding
from bigsvm.tables.files import expand, is_parts
from bigsvm.tables.reader import EncodedTable
from bigsvm.terminal.logs import LOGGER


@dataclass(frozen=True)
class Preparation:
    """How training data was prepared; see `bigsvm.models.scoring.Trained`."""

    classes: Classes
    n_features: int
    feature_names: list[str] | None
    scaling: Scaling | None
    encoding: Encoding | None
    label_column: str | None


@dataclass(frozen=True)
class Source:
    """Rows to predict."""

    name: str
    rows: int | None  # if known in advance
    chunks: Iterator[LabelledChunk]
    raw: bool  # still to be scaled


def is_store(source: Path | str) -> bool:
    """Whether `source` is a Zarr or HDF5 store, or a group in one, rather than a file of rows."""
    import h5py

    if is_url(str(source)):
        return True
    path = Path(source)
    if is_parts(path):
        return False
    if path.is_file():
        return bool(h5py.is_hdf5(path))
    if path.is_dir() or any(parent.is_file() for parent in path.parents):
        return True
    if path.suffix in (".zarr", ".h5", ".hdf5") or any(p.suffix == ".zarr" for p in path.parents):
        return True  # missing: opening the store gives the better message
    raise UserError(f"{path}: there is no such file or store")


def open_source(
    source: Path | str,
    options: ReadOptions,
    arrays: tuple[str | None, str | None],
    model: Model,
    stack: ExitStack,
    needs_labels: bool = False,
) -> Source:
    """Open the input of `predict`.

    Parameters
    ----------
    source : Path or str
        A store, a group in one, the address of either, or raw rows: a file, a pattern or a folder.
    options : ReadOptions
        How to read a file, and whether there are labels.
    arrays : (name of X, name of y)
        In a store that was not made by `prepare`.
    model : Model
        The model that the rows must match.
    stack : ExitStack
        Closes the input.
    needs_labels : bool
        A file without labels is an error.

    Returns
    -------
    Source
    """
    if is_store(source):
        return _open_store(source, arrays, model, options.with_labels, stack)
    if not is_parts(source):
        return open_file(Path(source), options, model, needs_labels)
    parts = [open_file(path, options, model, needs_labels) for path in expand(str(source))]
    counts = [part.rows for part in parts]
    rows = None if None in counts else sum(count or 0 for count in counts)
    return Source(str(source), rows, _one_after_the_other(parts), raw=True)


def _one_after_the_other(parts: Sequence[Source]) -> Iterator[LabelledChunk]:
    """The rows of several files, counted through."""
    start = 0
    for part in parts:
        end = start
        for chunk in part.chunks:
            yield chunk._replace(start=start + chunk.start)
            end = start + chunk.start + len(chunk.x)
        start = end


def _open_store(
    path: Path | str,
    arrays: tuple[str | None, str | None],
    model: Model,
    with_labels: bool,
    stack: ExitStack,
) -> Source:
    with wrap_read_errors(str(path)):
        group = open_group(path)
        try:
            part = "test" if "test" in group else "train"
            if (arrays[0] or "X") not in group and part in group:
                group = group.subgroup(part)
            with_labels = with_labels and (arrays[1] is not None or "y" in group)
        finally:
            group.close()
    spec = {"path": path, "x": arrays[0], "y": arrays[1]}
    dataset = stack.enter_context(
        open_dataset(
            spec, part, classes=model.classes if with_labels else None, with_labels=with_labels
        )
    )
    check_features_of(dataset, model)
    for line in dataset.missing_chunk_warnings():
        LOGGER.warning("%s", line)
    ours, theirs = effective_scaling(model.scaling), effective_scaling(dataset.scaling)
    if theirs is not None and theirs != ours:
        raise scaling_mismatch(model, dataset)
    chunks = chunks_of(dataset, with_labels=with_labels)
    return Source(dataset.path, dataset.n, chunks, raw=theirs is None)


def open_file(
    path: Path, options: ReadOptions, model: Model | Preparation, needs_labels: bool = False
) -> Source:
    """Open a file of raw rows for a model, or for data like its training data."""
    options = _with_label_column(path, options, model.label_column, needs_labels)
    chosen = _encoded_table(path, options, model) or _chosen_columns(path, options, model)
    if chosen is not None:
        if needs_labels and chosen.label is None:
            raise UserError(
                f"{path}: its last column is a feature, and no label; --label-column names the "
                "labels"
            )
        hint = ""
        if options.label_column is None and chosen.label is not None:
            hint = f" (of its last column, {chosen.label!r}; --label-column names another"
            hint += ")" if needs_labels else ", --no-labels says that there are none)"
        options = replace(options, with_labels=chosen.label is not None)
        chunks = _chunks_of_file(path, chosen, options, model, hint)
        return Source(str(path), chosen.n, chunks, raw=True)
    if detect_format(path, options) == "libsvm":
        # Rows may omit the last features.
        options = replace(options, features=model.n_features)
    reader = open_reader(path, options)
    advice = ""
    if reader.d == model.n_features - 1 and options.with_labels:
        advice = " (one column was read as the labels, which are needed here)"
        if not needs_labels:
            advice = " (one column was read as the labels; use --no-labels if there are none)"
    if reader.d == model.n_features + 1 and not options.with_labels:
        advice = " (is one column the labels? then leave out --no-labels)"
    check_features(model, reader.d, str(path), advice)
    reader = match_features(reader, model.feature_names, str(path), "the model")
    rows: int | None = getattr(reader, "n", None)  # unknown in advance for text
    return Source(str(path), rows, _chunks_of_file(path, reader, options, model), raw=True)


def _with_label_column(
    path: Path, options: ReadOptions, trained: str | None, needs_labels: bool
) -> ReadOptions:
    """Where none is named, the labels are in the column of the name they had in training."""
    if trained is None or options.label_column is not None or not options.with_labels:
        return options
    table = open_named_table(path, options)
    if table is None:
        return options
    if trained in table.names:
        return replace(options, label_column=trained)
    if needs_labels:
        raise UserError(
            f"{path}: has no column {quoted(trained)}, which held the labels in training; "
            "--label-column names another"
        )
    return replace(options, with_labels=False)


def _encoded_table(
    path: Path, options: ReadOptions, model: Model | Preparation
) -> EncodedTable | None:
    """The columns of a table, encoded as the training data was; None where that was not."""
    encoding = model.encoding
    if encoding is None:
        return None
    table = open_named_table(path, options)
    if table is None:
        raise UserError(
            f"{path}: its columns have no names, which the model goes by; take CSV with a header "
            "line, Parquet or Arrow"
        )
    check_names(table.names, encoding.names, str(path))
    label = _label_column(path, options, table, encoding.names)
    return EncodedTable([table], encoding, label, keep_rows=True)


def _label_column(
    path: Path, options: ReadOptions, table: NamedTable, features: list[str]
) -> str | None:
    """The column that was named, or the last one if that is no feature."""
    if not options.with_labels:
        return None
    names = table.names if options.label_column in table.names else table.columns
    label = names[column_position(path, options.label_column, names, len(names))]
    if label not in features:
        return label
    if options.label_column is not None:
        raise UserError(f"{path}: column {label!r} is a feature of the model, not a label")
    return None


def _chosen_columns(
    path: Path, options: ReadOptions, model: Model | Preparation
) -> ChosenColumns | None:
    """The columns the model knows by name, where the file has others too; None where it has not."""
    features = model.feature_names
    table = None if features is None else open_named_table(path, options)
    if features is None or table is None:
        return None
    names = table.names
    check_names(names, features, str(path))
    weight = None
    label = _label_column(path, options, table, features)
    if options.weight_column is not None:
        weight = names[column_position(path, options.weight_column, names, len(names), "weights")]
    exact = len(names) == len(features) + len({label, weight} - {None})
    if exact and not is_arrow(path):
        return None  # nothing to leave out: the reader of the format is faster
    return ChosenColumns(table, features, label)


def _chunks_of_file(
    path: Path,
    reader: Reader,
    options: ReadOptions,
    model: Model | Preparation,
    hint: str = "",
) -> Iterator[LabelledChunk]:
    """Yield the rows; `hint` is appended to an error about a label."""
    start, codes = 0, None
    for batch in reader.batches():
        if options.with_labels:
            try:
                codes = encode_labels(batch.y, model.classes, str(path))
            except UserError as mistake:
                raise UserError(f"{mistake}{hint}") from mistake
        yield LabelledChunk(start, batch.x, codes)
        start += len(batch.x)
