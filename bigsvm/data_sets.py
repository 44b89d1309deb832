"""From the `data` section of a config to stores that exist."""

import hashlib
import json
from pathlib import Path
from typing import Any

from bigsvm.addresses import is_address
from bigsvm.config import ArraysConfig, DataConfig
from bigsvm.errors import UserError
from bigsvm.prepare_options import PrepareOptions
from bigsvm.progress import Progress, silent

Spec = str | dict[str, Any]

# These decide how a store lies on the disk, not what is in it.
_LAYOUT = {"chunk_rows", "compression"}


def located(data: DataConfig, progress: Progress = silent) -> DataConfig:
    """The same section with `train` and `test` filled in, and the store of `source` made.

    A store that was made before is taken as it is, if it was made with the same options.
    """
    if data.source is None:
        return data
    assert not isinstance(data.train, ArraysConfig)
    store = Path(data.train) if data.train else default_store(data.source, data.prepare)
    _make_or_check(data.source, store, data.prepare, progress)
    test = data.test or (str(store / "test") if has_test(store) else None)
    return data.model_copy(update={"train": str(store), "test": test})


def as_spec(value: str | ArraysConfig) -> Spec:
    """A data set as `open_dataset` takes it."""
    return value.model_dump(exclude_none=True) if isinstance(value, ArraysConfig) else value


def as_seen_from_anywhere(value: str | ArraysConfig) -> Spec:
    """The same for a process in another folder."""
    spec = as_spec(value)
    path = spec if isinstance(spec, str) else spec["path"]
    if not is_address(path):
        path = str(Path(path).absolute())
    return path if isinstance(spec, str) else spec | {"path": path}


def default_store(source: str, options: PrepareOptions) -> Path:
    """Where the store of a source goes unless the user says; each content has its own place."""
    from bigsvm.sources import cache_folder

    content = json.dumps([source, _content(options)], sort_keys=True)
    tag = hashlib.sha256(content.encode()).hexdigest()[:10]
    return cache_folder() / "stores" / f"{Path(source).stem}-{tag}.zarr"


def has_test(store: Path) -> bool:
    """Whether a store has a group `test` beside `train`."""
    from bigsvm.store import open_dataset
    from bigsvm.store_place import open_place

    with open_dataset(store, with_labels=False) as train:
        if train.parts is not None:
            return "test" in train.parts
    place = open_place(store)  # made before the parts were written down
    try:
        return "test" in place.group
    finally:
        place.close()


def _make_or_check(source: str, store: Path, options: PrepareOptions, progress: Progress) -> None:
    from bigsvm.prepare import prepare
    from bigsvm.prepare_inputs import with_source_defaults
    from bigsvm.store import open_dataset

    if not store.exists():
        store.parent.mkdir(parents=True, exist_ok=True)
        prepare(source, store, options, progress=progress)
        return
    with open_dataset(store, with_labels=False) as made:
        recorded = {k: v for k, v in (made.prepare_options or {}).items() if k not in _LAYOUT}
        if made.source != source:
            raise UserError(
                f"{store}: was made from {made.source!r}, not from {source!r}; remove it, or name "
                "another data.train"
            )
    wanted = _content(with_source_defaults(source, options))
    for key in sorted(recorded.keys() | wanted.keys()):
        if recorded.get(key) != wanted.get(key):
            raise UserError(
                f"{store}: was prepared with {key} = {recorded.get(key)!r}, and data.prepare asks "
                f"for {wanted.get(key)!r}; remove it, or name another data.train"
            )


def _content(options: PrepareOptions) -> dict[str, Any]:
    return options.model_dump(mode="json", exclude_none=True, exclude=_LAYOUT)
