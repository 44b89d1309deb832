"""Preparing a store: parse to a spill file, split, fit the scaling, write."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bigsvm.config.prepare_options import PrepareOptions
from bigsvm.core.errors import DISK_FULL, UserError
from bigsvm.core.labels import Classes
from bigsvm.core.messages import Progress, no_progress, quoted
from bigsvm.core.scaling import Scaling, ScalingFit
from bigsvm.files.staging import staging_dir
from bigsvm.preparation.inputs import Input, check_source, open_inputs, with_source_defaults
from bigsvm.preparation.sources import file_digests, source_files
from bigsvm.preparation.spill import Spill
from bigsvm.preparation.split import TrainTestSplit
from bigsvm.stores.store import WEIGHT
from bigsvm.stores.writer import StoreMetadata, StoreWriter, check_target
from bigsvm.tables.files import SourceName, shown_source
from bigsvm.tables.fit import refit_encoding
from bigsvm.tables.reader import EncodedTable

FLOAT32_MAX = float(np.finfo(np.float32).max)
SAMPLE_ROWS = 2**16  # training rows from which deviations are computed if there is no scaling
UNEQUAL = 100.0


@dataclass(frozen=True)
class Summary:
    """The result of `prepare`."""

    store: Path
    d: int
    classes: Classes
    counts: dict[str, tuple[int, ...]]  # part -> rows of each class
    dropped: int
    scaling: Scaling
    weighted: bool
    seconds: float

    def __str__(self) -> str:
        signs = (" (-1)", " (+1)") if len(self.classes) == 2 else [""] * len(self.classes)
        lines = [
            f"{part}: {sum(counts):,} rows x {self.d} features; "
            + ", ".join(
                f"{label} {count:,}{sign}"
                for label, count, sign in zip(self.classes, counts, signs, strict=True)
            )
            for part, counts in self.counts.items()
        ]
        if self.dropped:
            lines.append(f"dropped: {self.dropped:,} rows")
        clip = "" if self.scaling.clip is None else f", clipped to {self.scaling.clip:g}"
        lines.append(f"scaling: {self.scaling.kind}{clip}")
        if self.weighted:
            lines.append(f"weights: {WEIGHT}, beside the rows (--set model.sample_weight={WEIGHT})")
        lines.append(f"written to {self.store} in {self.seconds:.1f} s")
        return "\n".join(lines)


def prepare(
    source: SourceName,
    store: Path,
    options: PrepareOptions | None = None,
    test_file: Path | None = None,
    progress: Progress = no_progress,
    overwrite: bool = False,
) -> Summary:
    """Stream `source` into `store`, in bounded memory and atomically.

    Parameters
    ----------
    source : str, Path or tuple of str
        A named source (see `bigsvm.preparation.sources`), `synthetic`, a file; or the files of a
        table: several names, a pattern, a folder.
    store : Path
        The Zarr (`*.zarr`) or HDF5 (`*.h5`) store to make.
    options : PrepareOptions
    test_file : Path, optional
        A file of test rows; without it, the options may split off a test set.
    progress : callable
        See `bigsvm.core.messages`.
    overwrite : bool
        Replace an existing store.

    Returns
    -------
    Summary
    """
    begin = time.monotonic()
    store = Path(store)
    check_source(source)
    options = with_source_defaults(source, options or PrepareOptions())
    check_target(store, options.compression, overwrite)
    with explain_full_disk(store), ExitStack() as stack:
        folder = stack.enter_context(staging_dir(store, "spill"))
        files = source_files(source, progress)
        if test_file is not None:
            files["test"] = Path(test_file)
        inputs = open_inputs(source, options, files)
        # Before reading: if a file is rewritten meanwhile, its digest must not match.
        digests = file_digests(files, progress)
        weighted = options.weight_column is not None
        encoding = getattr(inputs["train"].reader, "encoding", None)
        if isinstance(inputs["train"].reader, EncodedTable) and options.splits:
            inputs["train"].reader.leave_gaps = True  # the fills are those of training rows only
        parts = _spill_and_split(inputs, folder, options, progress, stack)
        if encoding is not None and parts.test_rows:
            batches = ((part, x) for part, x, *_ in parts.batches())
            encoding, features_left = refit_encoding(encoding, batches, options)
            parts.apply(encoding, features_left)
        scaling, fitted = fit_scaling(parts, options, progress)
        names = inputs["train"].reader.feature_names if encoding is None else encoding.features
        if scaling.kind == "none":
            warn_of_unequal_features(fitted, names)
        about = StoreMetadata(
            classes=parts.classes,
            scaling=scaling,
            feature_names=names,
            source=shown_source(source),
            encoding=encoding.to_json() if encoding is not None else None,
            label_column=getattr(inputs["train"].reader, "label", None),  # of a table with names
            files=digests,
            prepare=options.model_dump(mode="json", exclude_none=True),
        )
        with StoreWriter(
            store,
            parts.rows,
            parts.d,
            about,
            chunk_rows=options.chunk_rows,
            compression=options.compression,
            overwrite=overwrite,
            weighted=weighted,
        ) as writer:
            done = 0
            for part, x, codes, weight in parts.batches():
                writer.append(part, scale_rows(x, scaling), codes, weight)
                done += len(x)
                progress("writing rows", done, sum(parts.rows.values()))
    seconds = time.monotonic() - begin
    dropped = parts.dropped + sum(getattr(data.reader, "dropped", 0) for data in inputs.values())
    known = (parts.d, parts.classes, parts.counts, dropped, scaling, weighted)
    return Summary(store, *known, seconds)


def _spill_and_split(
    inputs: dict[str, Input],
    folder: Path,
    options: PrepareOptions,
    progress: Progress,
    stack: ExitStack,
) -> TrainTestSplit:
    """Parse all inputs into temporary files in `folder`, and divide the rows."""
    weighted = options.weight_column is not None
    spills = {}
    for part, data in inputs.items():
        spills[part] = stack.enter_context(Spill(folder, part, data.reader.d, weighted))
        spill_rows(data, spills[part], options, progress)
    origins = {part: data.name for part, data in inputs.items()}
    test_rows = n_test_rows(spills["train"].n, options)
    return TrainTestSplit(spills, test_rows, options.seed, options.positive, origins)


def spill_rows(data: Input, spill: Spill, options: PrepareOptions, progress: Progress) -> None:
    """Parse all rows of `data` into `spill`."""
    drop = None if options.drop_value == "none" else options.drop_value
    for batch in data.reader.batches():
        if options.scaling == "none" and options.clip is None:
            too_large = np.abs(batch.x) > FLOAT32_MAX
            if too_large.any():
                row, column = np.argwhere(too_large)[0]
                raise UserError(
                    f"{data.name}, {batch.location(row)}, feature {column + 1}: "
                    f"{batch.x[row, column]:g} does not fit into float32; use --scaling or --clip"
                )
        spill.append(batch, drop, data.name)
        progress(f"reading rows of {Path(data.name).name}", spill.n, None)
    if spill.n == 0:
        dropped = f" ({spill.dropped} were dropped)" if spill.dropped else ""
        raise UserError(f"{data.name}: no rows are left{dropped}")


def n_test_rows(n: int, options: PrepareOptions) -> int:
    """How many of n rows the options put into the test set."""
    test_rows = options.test_rows or 0
    if options.test_fraction is not None:
        test_rows = max(1, round(n * options.test_fraction))
    if test_rows >= n:
        raise UserError(f"{test_rows} test rows of {n} leave none to train on; take fewer")
    return test_rows


def fit_scaling(
    parts: TrainTestSplit, options: PrepareOptions, progress: Progress
) -> tuple[Scaling, ScalingFit]:
    """The scaling, and the statistics of the training rows (a sample of them if it is none)."""
    assert options.scaling is not None  # since `with_source_defaults`
    collected = ScalingFit(parts.d)
    rows = (
        min(parts.rows["train"], SAMPLE_ROWS) if options.scaling == "none" else parts.rows["train"]
    )
    for part, x, *_ in parts.batches():
        if part == "train":
            collected.add(x[: rows - collected.count])
            if options.scaling != "none":
                progress("fitting the scaling", collected.count, rows)
            if collected.count == rows:
                break
    return collected.finish(options.scaling, options.clip), collected


def warn_of_unequal_features(fit: ScalingFit, names: list[str] | None) -> None:
    """Warn on stderr if unscaled features differ by orders of magnitude.

    Both in deviation and in range: a feature that is 1 in few rows also has a small deviation.
    """
    spread, width = np.sqrt(fit.squares / fit.count), fit.high / 2 - fit.low / 2
    varying = np.flatnonzero((spread > 0) & np.isfinite(spread))
    if not len(varying):
        return
    large, small = varying[spread[varying].argmax()], varying[spread[varying].argmin()]
    if min(spread[large] / spread[small], width[large] / width[small]) >= UNEQUAL:
        shown = [f"feature {k + 1}" if names is None else quoted(names[k]) for k in (large, small)]
        print(
            f"warning: the rows are not scaled, and {shown[0]} (deviation {spread[large]:.2g}) "
            f"outweighs {shown[1]} ({spread[small]:.2g}); --scaling standard makes them equal",
            file=sys.stderr,
        )


def scale_rows(x: np.ndarray, scaling: Scaling) -> np.ndarray:
    """Scale rows to float32, checked to be finite."""
    rows = scaling.apply(x)
    if not np.isfinite(rows).all():
        row, column = np.argwhere(~np.isfinite(rows))[0]
        raise UserError(
            f"feature {column + 1}: the value {x[row, column]:g}, scaled, does not fit into "
            "float32; use --clip"
        )
    return rows


@contextmanager
def explain_full_disk(store: Path) -> Iterator[None]:
    """Add to the error of a full disk what was being written, and the space it needs."""
    try:
        yield
    except OSError as problem:
        if problem.errno in DISK_FULL:
            raise OSError(
                problem.errno,
                f"{os.strerror(problem.errno)}; besides the store, 8 bytes per value are needed "
                "temporarily",
                str(store),
            ) from problem
        raise
