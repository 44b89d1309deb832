"""Which stored arrays are read: numbers and text, by codecs that cannot run code.

A store may come from a stranger, and its metadata choose the codecs that its chunks are decoded
with. Some of those codecs execute what they decode (numcodecs' `pickle`), others are installed by
packages that this one knows nothing of. So codecs are allowed by name, before anything is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from bigsvm.core.errors import UserError

NUMERIC_KINDS = "biuf"
TEXT_KINDS = "SUOT"

# Compression, checksums and the order of bytes.
_OF_BYTES = {"blosc", "bz2", "gzip", "lz4", "lzma", "shuffle", "zlib", "zstd"}
_OF_BYTES |= {"adler32", "crc32", "crc32c", "fletcher32", "jenkins_lookup3"}
# Arithmetic on numbers. Their configuration names data types, which are checked as well.
_OF_NUMBERS = {"astype", "bitround", "delta", "fixedscaleoffset", "packbits", "quantize"}
_OF_TEXT = {"vlen-bytes", "vlen-utf8"}
_OF_ZARR_3 = {"bytes", "cast_value", "endian", "scale_offset", "sharding_indexed", "transpose"}
CODECS = _OF_BYTES | _OF_NUMBERS | _OF_TEXT | _OF_ZARR_3


def check_codecs(array: Any, where: str) -> None:
    """Refuse a Zarr array that is decoded by anything but the codecs known to be harmless."""
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
            f"{where}: its codec {codec!r} makes {str(value)[:50]!r} of the data, which are no "
            "real numbers; store it again without"
        )


def _codecs(metadata: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Name and configuration of each codec that decoding involves."""
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
        for nested in ("codecs", "index_codecs"):  # those inside a shard
            pending += settings.get(nested) or []
        yield str(codec["name"]).removeprefix("numcodecs."), settings


def is_text(array: Any) -> bool:
    """Whether an array holds text: an object array may hold anything else, too."""
    kind = array.dtype.kind
    if kind != "O" or hasattr(array, "metadata"):
        # Once its codecs are checked, a Zarr array of objects can hold only text or bytes.
        return kind in TEXT_KINDS
    import h5py

    return h5py.check_string_dtype(array.dtype) is not None
