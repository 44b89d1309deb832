"""Which stored arrays may be read: numbers and text, by codecs that cannot run code.

A store may be untrusted, and its metadata choose the codecs that decode its chunks. Some codecs
execute what they decode (numcodecs' `pickle`), and others are registered by packages unknown to
this one. Therefore codecs are allowed by name, and checked before anything is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from bigsvm.core.errors import UserError

NUMERIC_KINDS = "biuf"
TEXT_KINDS = "SUOT"

# Compression, checksums and byte order.
_BYTE_CODECS = {"blosc", "bz2", "gzip", "lz4", "lzma", "shuffle", "zlib", "zstd"}
_BYTE_CODECS |= {"adler32", "crc32", "crc32c", "fletcher32", "jenkins_lookup3"}
# Arithmetic on numbers. The data types in their configuration are checked as well.
_NUMBER_CODECS = {"astype", "bitround", "delta", "fixedscaleoffset", "packbits", "quantize"}
_TEXT_CODECS = {"vlen-bytes", "vlen-utf8"}
_ZARR_3_CODECS = {"bytes", "cast_value", "endian", "scale_offset", "sharding_indexed", "transpose"}
CODECS = _BYTE_CODECS | _NUMBER_CODECS | _TEXT_CODECS | _ZARR_3_CODECS


def check_codecs(array: Any, where: str) -> None:
    """Reject a Zarr array that is decoded by any codec not known to be harmless."""
    for name, settings in _codecs(array.metadata):
        if name not in CODECS:
            raise UserError(
                f"{where}: is stored with the codec {name!r}, which is not read because it might "
                f"run code; store it again with another one, such as zstd"
            )
        for key, value in settings.items():
            if key.endswith("dtype") or key == "astype":
                _check_data_type(value, name, where)


def _check_data_type(value: Any, codec: str, where: str) -> None:
    try:
        known = np.dtype(value).kind in NUMERIC_KINDS
    except TypeError:
        known = False
    if not known:
        raise UserError(
            f"{where}: its codec {codec!r} converts the data to {str(value)[:50]!r}, not to real "
            "numbers; store it again without that codec"
        )


def _codecs(metadata: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield name and configuration of each codec that decodes the array."""
    if metadata.zarr_format == 2:
        for codec in (*(metadata.filters or ()), metadata.compressor):
            if codec is not None:
                settings = dict(codec.get_config())
                yield str(settings.pop("id")), settings
        return
    pending = [codec.to_dict() for codec in metadata.codecs]
    while pending:
        codec = pending.pop()
        settings = codec.get("configuration") or {}
        for nested in ("codecs", "index_codecs"):  # the codecs inside a shard
            pending += settings.get(nested) or []
        yield str(codec["name"]).removeprefix("numcodecs."), settings


def is_text(array: Any) -> bool:
    """Whether an array holds text; an object array could hold anything."""
    kind = array.dtype.kind
    if kind != "O" or hasattr(array, "metadata"):
        # Once its codecs are checked, a Zarr array of objects can hold only text or bytes.
        return kind in TEXT_KINDS
    import h5py

    return h5py.check_string_dtype(array.dtype) is not None
