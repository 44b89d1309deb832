"""New labelled data, prepared exactly as the training data of a model or a store was."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bigsvm.core.errors import UserError
from bigsvm.core.messages import Progress, no_progress
from bigsvm.files.staging import staging_dir
from bigsvm.models.model import load_model
from bigsvm.models.scoring import LabelledChunk, scale_chunks
from bigsvm.prediction.inputs import Preparation, open_file
from bigsvm.preparation.sources import file_digests
from bigsvm.readers import ReadOptions
from bigsvm.stores.store import open_dataset
from bigsvm.stores.writer import StoreMetadata, StoreWriter, check_target
from bigsvm.tables.encoding import Encoding
from bigsvm.tables.files import SourceName, expand, shown_source


def preparation_of(path: Path) -> Preparation:
    """How the training data of a model, of a run, or in a store was prepared."""
    is_run = (path / "config.yaml").exists() and (path / "snapshots").is_dir()
    if is_run or path.suffix == ".safetensors":
        model = load_model(path)
        known = (model.classes, model.n_features, model.feature_names, model.scaling)
        return Preparation(*known, model.encoding, model.label_column)
    with open_dataset(path) as data:
        found = None if data.encoding is None else Encoding.from_json(data.encoding)
        known = (data.classes, data.d, data.feature_names, data.scaling)
        return Preparation(*known, found, data.label_column)


def prepare_like(
    source: SourceName,
    store: Path,
    like: Preparation,
    options: ReadOptions,
    *,
    overwrite: bool = False,
    progress: Progress = no_progress,
) -> int:
    """Stream files of labelled rows into a store, whose part is `test`; return how many rows.

    Columns go by name, categories, gaps and scaling are as in the training data, labels are its
    labels; nothing is fitted. The files are read twice: the first time to count their rows.
    """
    check_target(store, None, overwrite)
    files = expand(source)

    def chunks() -> Iterator[LabelledChunk]:
        for path in files:
            yield from open_file(path, options, like, needs_labels=True).chunks

    rows = 0
    for chunk in chunks():
        rows += len(chunk.x)
        progress("counting rows", rows, None)
    parts = {f"test {k}" if k > 1 else "test": path for k, path in enumerate(files, start=1)}
    about = StoreMetadata(
        classes=like.classes,
        scaling=like.scaling,
        feature_names=like.feature_names,
        source=shown_source(source),
        files=file_digests(parts, progress),
        encoding=None if like.encoding is None else like.encoding.to_json(),
        label_column=like.label_column,
    )
    with StoreWriter(store, {"test": rows}, like.n_features, about, overwrite=overwrite) as writer:
        done = 0
        for chunk in scale_chunks(chunks(), shown_source(source), like.scaling):
            assert chunk.codes is not None  # they were asked for
            writer.append("test", chunk.x.astype("float32", copy=False), chunk.codes)
            done += len(chunk.x)
            progress("writing rows", done, rows)
    return rows


@contextmanager
def prepared_test_set(
    source: SourceName, trained: Path, options: ReadOptions, progress: Progress = no_progress
) -> Iterator[Path]:
    """A store of raw test files for the models of a run, or for one model, while the block lasts.

    Only one process at a time may do this for a run; what a killed one has left behind is removed.
    """
    beside, models = trained, [trained]
    if trained.is_dir():
        snapshots = sorted((trained / "snapshots").glob("model-*.safetensors"))
        models = [path for path in (trained / "model.safetensors", *snapshots) if path.exists()]
        beside = trained / "evaluation.csv"
    if not models:
        raise UserError(f"{trained}: has neither snapshots nor a model yet")
    with staging_dir(beside, "test") as folder:
        store = folder / "test.zarr"
        prepare_like(source, store, preparation_of(models[0]), options, progress=progress)
        yield store
