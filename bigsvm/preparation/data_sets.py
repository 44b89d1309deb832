"""Resolving the `data` section of a config to stores, which are prepared if necessary."""

import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bigsvm.config import ArraysConfig, DataConfig, PrepareOptions
from bigsvm.core.errors import BeingWritten, UserError
from bigsvm.core.messages import Progress, no_progress
from bigsvm.core.urls import is_url
from bigsvm.preparation.sources import cache_dir, file_digests, local_files, source_files
from bigsvm.stores.group import open_group
from bigsvm.stores.store import open_dataset
from bigsvm.terminal.logs import log

Spec = str | dict[str, Any]
POLL_SECONDS = 0.5

# Options for how a store is laid out on disk, which do not affect its content.
_LAYOUT = {"chunk_rows", "compression"}


def resolve_data(data: DataConfig, progress: Progress = no_progress) -> DataConfig:
    """The section with `train` and `test` filled in; prepares the store of `source` if needed.

    An existing store is reused if it was made with the same options from files with the same
    content. If another process is making it (as in a job array with an empty cache), this waits.
    """
    waiting = False
    while True:
        try:
            return _resolve(data, progress)
        except BeingWritten as other:
            if not waiting:
                what = str(other).partition(";")[0]
                log(f"waiting: {what}")
            waiting = True
            time.sleep(POLL_SECONDS)


def _resolve(data: DataConfig, progress: Progress) -> DataConfig:
    if data.source is None:
        return data
    # Imported here, because pyarrow's 40 MiB would count against `solver.memory_limit` even where
    # there is nothing to prepare.
    from bigsvm.preparation.inputs import check_source, with_source_defaults
    from bigsvm.preparation.pipeline import prepare

    assert not isinstance(data.train, ArraysConfig)
    source = data.source
    if not data.train or not Path(data.train).exists():
        check_source(source)
    options = data.prepare
    if options.scaling is None and data.train and Path(data.train).exists():
        # The store may be older than the default, and its source gone.
        with open_dataset(data.train, with_labels=False) as made:
            recorded = (made.prepare_options or {}).get("scaling")
        options = options.model_copy(update={"scaling": recorded or "none"})
    options = with_source_defaults(source, options)
    if data.train:
        store = Path(data.train)
        digests = file_digests(local_files(source), progress) if store.exists() else {}
    else:
        digests = file_digests(source_files(source, progress), progress)
        store = default_store(source, options, digests)
    if store.exists():
        _check(store, source, digests, options)
    else:
        store.parent.mkdir(parents=True, exist_ok=True)
        try:
            prepare(source, store, data.prepare, progress=progress)
        except UserError:
            if not store.exists():
                raise
            _check(store, source, digests, options)  # another process was faster
    test = data.test or (str(store / "test") if has_test(store) else None)
    return data.model_copy(update={"train": str(store), "test": test})


def dataset_spec(value: str | ArraysConfig) -> Spec:
    """The spec of a data set for `open_dataset`."""
    return value.model_dump(exclude_none=True) if isinstance(value, ArraysConfig) else value


def absolute_spec(value: str | ArraysConfig) -> Spec:
    """The spec for a process with another working directory."""
    return dataset_spec(_absolute(value))


def with_absolute_paths(data: DataConfig) -> DataConfig:
    """The section for a command that is started in another working directory."""
    specs = {"train": data.train, "test": data.test, "validation": data.validation}
    return data.model_copy(
        update={key: _absolute(spec) for key, spec in specs.items() if spec is not None}
    )


def _absolute(value: str | ArraysConfig) -> str | ArraysConfig:
    if isinstance(value, ArraysConfig):
        return value.model_copy(update={"path": _absolute(value.path)})
    return value if is_url(value) else str(Path(value).absolute())


def default_store(source: str, options: PrepareOptions, digests: Mapping[str, str]) -> Path:
    """The default path for the store of a source, different for each content.

    `digests` are those of the source files, whose names may stand for other data tomorrow.
    """
    # The file name is included because its extension may determine the format.
    content = json.dumps([Path(source).name, digests, _content(options)], sort_keys=True)
    tag = hashlib.sha256(content.encode()).hexdigest()[:10]
    return cache_dir() / "stores" / f"{Path(source).stem}-{tag}.zarr"


def has_test(store: Path) -> bool:
    """Whether a store has a group `test` beside `train`."""
    with open_dataset(store, with_labels=False) as train:
        if train.parts is not None:
            return "test" in train.parts
    group = open_group(store)  # made before `parts` was recorded
    try:
        return "test" in group
    finally:
        group.close()


def _check(store: Path, source: str, digests: Mapping[str, str], options: PrepareOptions) -> None:
    """Reject a store that was not made from the current files of this source with these options."""
    with open_dataset(store, with_labels=False) as made:
        recorded = {k: v for k, v in (made.prepare_options or {}).items() if k not in _LAYOUT}
        origin, files = made.source, made.files
    # The files may be gone, and an old store may not have recorded their digests.
    same = digests.items() <= files.items() if digests and files else origin == source
    if not same:
        was = f"{origin!r}, which has changed since" if origin == source else repr(origin)
        raise UserError(
            f"{store}: was made from {was}, not from {source!r} as it is now; remove it, name "
            "another data.train, or leave out data.source to train on the store as it is"
        )
    expected = _content(options)
    for key in sorted(recorded.keys() | expected.keys()):
        # Compare as text, because values from a command line are text (--positive 1).
        if str(recorded.get(key)) != str(expected.get(key)):
            raise UserError(
                f"{store}: was prepared with {key} = {recorded.get(key)!r}, and data.prepare asks "
                f"for {expected.get(key)!r}; remove it, or name another data.train"
            )


def _content(options: PrepareOptions) -> dict[str, Any]:
    return options.model_dump(mode="json", exclude_none=True, exclude=_LAYOUT)
