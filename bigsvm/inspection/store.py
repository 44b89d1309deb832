"""The facts about a store, or a group in one."""

from pathlib import Path
from typing import Any

import numpy as np

from bigsvm.core.labels import class_codes
from bigsvm.core.messages import one_line
from bigsvm.inspection.model import encoding_facts, scaling_facts
from bigsvm.stores.group import StoreGroup, open_group, wrap_read_errors
from bigsvm.stores.store import WEIGHT, Dataset, open_dataset
from bigsvm.tables.encoding import Encoding


def store_facts(path: Path) -> dict[str, Any]:
    """The facts, ready for JSON. Reads the labels, to count them, but no rows."""
    with wrap_read_errors(str(path)):
        return _store_facts(path)


def _store_facts(path: Path) -> dict[str, Any]:
    place = open_group(path)
    try:
        form = f"Zarr v{place.handle.metadata.zarr_format}" if place.is_zarr else "HDF5"
        parts = [
            name for name in ("train", "test") if name in place and "X" in place.subgroup(name)
        ]
        here = "X" in place
        arrays = None if here or parts else _arrays(place)
        labelled = {part: "y" in (place.subgroup(part) if part else place) for part in [*parts, ""]}
    finally:
        place.close()
    facts: dict[str, Any] = {"store": str(path), "format": form}
    if here:
        return facts | _part(path, labelled[""])
    if parts:
        return facts | {part: _part(path / part, labelled[part]) for part in parts}
    return facts | {"arrays": arrays or None}  # arrays with other names


def _arrays(place: StoreGroup) -> dict[str, Any]:
    """The shape and type of each array in a group."""
    facts: dict[str, Any] = {}
    for name in place.names():
        try:
            found = place[name]
        except Exception as reason:  # Zarr raises errors of many types for unknown content
            facts[name] = {"not read": one_line(reason, limit=1000)}
            continue
        if hasattr(found, "shape"):
            facts[name] = {"shape": list(found.shape), "type": str(found.dtype)}
    return facts


def _part(path: Path, with_labels: bool) -> dict[str, Any]:
    with open_dataset(path, with_labels=with_labels) as data:
        absences = data.missing_chunk_warnings()
        return {
            "rows": data.n,
            "features": data.d,
            "classes": _counts(data) if with_labels else None,
            "weight": _weights(data),
            "feature_names": data.feature_names,
            **({} if data.label_column is None else {"label_column": data.label_column}),
            **encoding_facts(None if data.encoding is None else Encoding.from_json(data.encoding)),
            "chunk_rows": data.chunk_rows,
            "chunk_bytes": data.stored_chunk_bytes,
            "scaling": scaling_facts(data.scaling),
            "source": data.source or None,
            "prepare": {k: v for k, v in data.prepare_options.items() if v is not None} or None,
            "fingerprint": data.recorded_fingerprint,
            **({"absent": "; ".join(absences)} if absences else {}),
        }


def _counts(data: Dataset) -> dict[str, int]:
    codes = data.labels()
    return {
        str(label): int(np.count_nonzero(codes == code))
        for label, code in zip(data.classes, class_codes(data.classes), strict=True)
    }


def _weights(data: Dataset) -> dict[str, float] | None:
    if not data.has_weights:
        return None
    values = data.read_vector(WEIGHT)
    return {"smallest": float(values.min()), "largest": float(values.max())}
