"""xz streams read within a bound of memory: the file says how much its reader must set aside."""

import io
import lzma
from typing import IO

from bigsvm.core.errors import UserError

PIECE = 2**16
# `xz -9` needs 65 MiB. A file can ask for 4 GiB, whatever its size.
MEMORY_LIMIT = 192 * 2**20


class XzStream(io.RawIOBase):
    """The text of an xz file; lzma.LZMAFile, but for the bound."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file = file
        self._name = name
        self._decompressor = self._new()

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill `buffer` as far as one step goes; 0 at the end."""
        while True:
            if self._decompressor.eof:
                rest = self._decompressor.unused_data.lstrip(b"\0") or self._after_padding()
                if not rest:
                    return 0
                self._decompressor = self._new()
                data = rest
            else:
                data = self._file.read(PIECE) if self._decompressor.needs_input else b""
                if not data and self._decompressor.needs_input:
                    raise EOFError("the file ends within a stream")
            text = self._decompress(data, len(buffer))
            if text:
                buffer[: len(text)] = text
                return len(text)

    def _decompress(self, data: bytes, size: int) -> bytes:
        try:
            return self._decompressor.decompress(data, size)
        except lzma.LZMAError as problem:
            if "memory usage limit" not in str(problem).lower():
                raise
            raise UserError(
                f"{self._name}: needs more than {MEMORY_LIMIT // 2**20} MiB to be unpacked; "
                "compress it again with a smaller dictionary, such as that of xz -9"
            ) from problem

    def _after_padding(self) -> bytes:
        while data := self._file.read(PIECE):
            if rest := data.lstrip(b"\0"):
                return rest
        return b""

    def _new(self) -> lzma.LZMADecompressor:
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MEMORY_LIMIT)
