"""Arrays and a description in one safetensors file, sealed by a checksum.

The files are plain safetensors: any reader takes them, and reading one runs no code. Ours also
checks the seal, so that a damaged file is noticed and named.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bigsvm.core.arrays import RowChunks
from bigsvm.core.errors import UserError
from bigsvm.files.atomic import atomic_write

_DTYPES = {"float64": "F64", "float32": "F32", "int64": "I64", "int8": "I8"}


def write_tensors(
    path: Path, arrays: Mapping[str, np.ndarray | RowChunks], about: Mapping[str, Any]
) -> None:
    """Write `arrays` and the JSON-able `about` to `path`, whole or not at all.

    The same content gives the same bytes. Written piece by piece: no second copy in memory.
    """
    arrays = {name: arrays[name] for name in sorted(arrays)}
    described = json.dumps(about, sort_keys=True)
    digest = hashlib.sha256(described.encode())
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        file.write(_header(described, digest.hexdigest(), arrays))  # as long as the right one
        for name, array in arrays.items():
            digest.update(_title(name, array))
            for piece in [array] if isinstance(array, np.ndarray) else array:
                content = np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data
                digest.update(content)
                file.write(content)
        file.seek(0)
        file.write(_header(described, digest.hexdigest(), arrays))


def _header(described: str, checksum: str, arrays: Mapping[str, np.ndarray | RowChunks]) -> bytes:
    """The beginning of a safetensors file."""
    header: dict[str, Any] = {"__metadata__": {"about": described, "checksum": checksum}}
    end = 0
    for name, array in arrays.items():
        begin, end = end, end + math.prod(array.shape) * array.dtype.itemsize
        shape = list(array.shape)
        dtype = _DTYPES[array.dtype.name]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header, sort_keys=True).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def read_tensors(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read what `write_tensors` wrote; a damaged file, or one of another kind, is a UserError.

    A file that cannot be read just now (too many are open, the share is away) is no damaged one:
    that is an OSError.
    """
    from safetensors import SafetensorError, safe_open

    if path.is_dir():
        raise UserError(f"{path}: is a folder; name a file in it, such as model.safetensors")
    try:
        with path.open("rb") as file:  # safetensors would call each failure "no such file"
            file.read(1)
    except FileNotFoundError as missing:
        raise UserError(f"{path}: there is no such file") from missing
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in sorted(file.keys())}
        described, checksum = metadata["about"], metadata["checksum"]
    except (
        SafetensorError,
        LookupError,
        OSError,
        TypeError,
        ValueError,
        AttributeError,
    ) as problem:
        reason = " ".join(str(problem).split())[:200]
        raise UserError(f"{path}: is damaged, or not a file of bigsvm ({reason})") from problem
    if checksum != _checksum(described, arrays):
        raise UserError(f"{path}: is damaged, its checksum does not fit its content")
    return arrays, _described(path, described)


def _described(path: Path, text: str) -> dict[str, Any]:
    """The seal says that the text is whole, not who wrote it."""
    try:
        about = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise UserError(f"{path}: its description makes no sense ({problem})") from problem
    if not isinstance(about, dict):
        raise UserError(f"{path}: its description is no list of keys and values")
    return about


def _checksum(described: str, arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256(described.encode())
    for name, array in arrays.items():
        digest.update(_title(name, array))
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _title(name: str, array: np.ndarray | RowChunks) -> bytes:
    return f"\n{name} {array.dtype.name} {array.shape}\n".encode()
