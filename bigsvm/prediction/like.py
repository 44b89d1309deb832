"""New labelled data, prepared exactly as the training data of a model or a store was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from bigsvm.core.errors import UserError
from bigsvm.core.progress import Progress, no_progress

if TYPE_CHECKING:
    from bigsvm.core.labels import Classes
    from bigsvm.core.scaling import Scaling
    from bigsvm.readers import ReadOptions
    from bigsvm.tables.encoding import Encoding


@dataclass(frozen=True)
class Preparation:
    """What was done to training data, and what it came to; see `bigsvm.models.scoring.Trained`."""

    classes: Classes
    n_features: int
    feature_names: list[str] | None
    scaling: Scaling | None
    encoding: Encoding | None


def preparation_of(path: Path) -> Preparation:
    """How the training data of a model, of a run, or in a store was prepared."""
    from bigsvm.models.model import load_model
    from bigsvm.stores.store import open_dataset
    from bigsvm.tables.encoding import Encoding

    if (path / "config.yaml").exists() and (path / "snapshots").is_dir():
        path = path / "model.safetensors"
    if path.suffix == ".safetensors":
        model = load_model(path)
        known = (model.classes, model.n_features, model.feature_names, model.scaling)
        return Preparation(*known, model.encoding)
    with open_dataset(path) as data:
        found = None if data.encoding is None else Encoding.from_json(data.encoding)
        return Preparation(data.classes, data.d, data.feature_names, data.scaling, found)


def prepare_like(
    source: Path,
    store: Path,
    like: Preparation,
    options: ReadOptions,
    *,
    overwrite: bool = False,
    progress: Progress = no_progress,
) -> int:
    """Stream a file of labelled rows into a store, whose part is `test`; return how many rows.

    Columns go by name, categories, gaps and scaling are as in the training data, labels are its
    labels; nothing is fitted. The file is read twice: the first time to count its rows.
    """
    from bigsvm.models.scoring import scale_chunks
    from bigsvm.prediction.inputs import open_file
    from bigsvm.preparation.sources import file_digests
    from bigsvm.stores.writer import StoreMetadata, StoreWriter, check_target

    check_target(store, None, overwrite)
    if not source.is_file():
        raise UserError(f"{source}: there is no such file")
    rows = 0
    for chunk in open_file(source, options, like).chunks:
        if chunk.codes is None:
            raise UserError(
                f"{source}: its last column is a feature, and no label; --label-column names the "
                "labels"
            )
        rows += len(chunk.x)
        progress("counting rows", rows, None)
    about = StoreMetadata(
        classes=like.classes,
        scaling=like.scaling,
        feature_names=like.feature_names,
        source=str(source),
        files=file_digests({"test": source}, progress),
        encoding=None if like.encoding is None else like.encoding.to_json(),
    )
    with StoreWriter(store, {"test": rows}, like.n_features, about, overwrite=overwrite) as writer:
        done = 0
        chunks: Any = open_file(source, options, like).chunks
        for chunk in scale_chunks(chunks, str(source), like.scaling):
            assert chunk.codes is not None  # as when they were counted
            writer.append("test", chunk.x.astype("float32", copy=False), chunk.codes)
            done += len(chunk.x)
            progress("writing rows", done, rows)
    return rows


@contextmanager
def prepared_test_set(
    source: Path, run: Path, options: ReadOptions, progress: Progress = no_progress
) -> Iterator[Path]:
    """A store of a raw test file for the models of a run, for as long as the block lasts."""
    snapshots = sorted((run / "snapshots").glob("model-*.safetensors"))
    models = [path for path in (run / "model.safetensors", *snapshots) if path.exists()]
    if not models:
        raise UserError(f"{run}: has neither snapshots nor a model yet")
    with TemporaryDirectory(prefix=".test-", dir=run) as folder:
        store = Path(folder, "test.zarr")
        prepare_like(source, store, preparation_of(models[0]), options, progress=progress)
        yield store
