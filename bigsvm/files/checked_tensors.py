"""Arrays and a JSON description in one safetensors file, with a checksum of both.

The files are plain safetensors: any reader can open them, and reading one runs no code. This reader
also verifies the checksum, so that a damaged file is detected and named.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from bigsvm.core.arrays import RowChunks
from bigsvm.core.errors import UserError
from bigsvm.core.messages import one_line
from bigsvm.files.atomic import atomic_write

_DTYPES = {"float64": "F64", "float32": "F32", "int64": "I64", "int8": "I8"}


def write_tensors(
    path: Path, arrays: Mapping[str, np.ndarray | RowChunks], about: Mapping[str, Any]
) -> None:
    """Write `arrays` and the description `about` to `path` atomically.

    The same content gives the same bytes. Arrays are written chunk by chunk, without a second copy
    in memory.
    """
    arrays = {name: arrays[name] for name in sorted(arrays)}
    description = json.dumps(about, sort_keys=True)
    digest = hashlib.sha256(description.encode())
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        # A placeholder of the same length: the checksum is known only at the end.
        file.write(_header(description, digest.hexdigest(), arrays))
        for name, array in arrays.items():
            digest.update(_title(name, array))
            for chunk in [array] if isinstance(array, np.ndarray) else array:
                content = np.ascontiguousarray(chunk).reshape(-1).view(np.uint8).data
                digest.update(content)
                file.write(content)
        file.seek(0)
        file.write(_header(description, digest.hexdigest(), arrays))


def _header(description: str, checksum: str, arrays: Mapping[str, np.ndarray | RowChunks]) -> bytes:
    """The header of a safetensors file."""
    header: dict[str, Any] = {"__metadata__": {"about": description, "checksum": checksum}}
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
    """Read a file of `write_tensors`; a damaged file, or one of another kind, is a UserError.

    A file that cannot be read at the moment (too many open files, an unavailable network share) is
    not damaged, and gives an OSError.
    """
    if path.is_dir():
        raise UserError(f"{path}: is a folder; name a file in it, such as model.safetensors")
    try:
        with path.open("rb") as file:  # safetensors reports every failure as "no such file"
            file.read(1)
    except FileNotFoundError as missing:
        raise UserError(f"{path}: there is no such file") from missing
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in sorted(file.keys())}
        description, checksum = metadata["about"], metadata["checksum"]
    except (
        SafetensorError,
        LookupError,
        OSError,
        TypeError,
        ValueError,
        AttributeError,
    ) as problem:
        raise UserError(
            f"{path}: is damaged, or not a file of bigsvm ({one_line(problem)})"
        ) from problem
    if checksum != _checksum(description, arrays):
        raise UserError(f"{path}: is damaged, its checksum does not fit its content")
    return arrays, _parse_description(path, description)


def _parse_description(path: Path, text: str) -> dict[str, Any]:
    """The description; a valid checksum does not mean that bigsvm wrote it."""
    try:
        about = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise UserError(f"{path}: its description is not valid JSON ({problem})") from problem
    if not isinstance(about, dict):
        raise UserError(f"{path}: its description is not a JSON object")
    return about


def _checksum(description: str, arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256(description.encode())
    for name, array in arrays.items():
        digest.update(_title(name, array))
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _title(name: str, array: np.ndarray | RowChunks) -> bytes:
    return f"\n{name} {array.dtype.name} {array.shape}\n".encode()
