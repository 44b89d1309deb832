"""Reading text files, compressed or not, as blocks of whole lines."""

import bz2
import contextlib
import gzip
import io
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from bigsvm.core.errors import UserError
from bigsvm.core.messages import one_line, quoted_list

BLOCK_BYTES = 4 * 2**20
MAX_LINE_BYTES = 64 * 2**20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
NEWLINE = 10

ZIP_MAGIC = b"PK\x03\x04"

XZ_READ_BYTES = 2**16
# An xz file declares how much memory its reader must allocate, up to 4 GiB; `xz -9` needs 65 MiB.
XZ_MEMORY_LIMIT = 192 * 2**20

# The exceptions that the standard library raises on damaged files.
DAMAGE = (
    EOFError,
    KeyError,
    OSError,
    RuntimeError,
    ValueError,
    lzma.LZMAError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


def magic_bytes(path: Path) -> bytes:
    """The first bytes of `path` as stored; rejects what cannot be a data file."""
    if not path.exists():
        raise UserError(f"{path}: no such file")
    if not path.is_file():
        raise UserError(f"{path}: not a file (a folder, or a pipe, cannot be read as data)")
    try:
        with path.open("rb") as file:
            first = file.read(16)
    except OSError as failure:
        raise UserError(f"{path}: cannot be read: {failure.strerror}") from failure
    if not first:
        raise UserError(f"{path}: the file is empty")
    return first


@contextlib.contextmanager
def open_stream(path: Path) -> Iterator[IO[bytes]]:
    """Open `path` and decompress it, as its magic bytes (not its name) require."""
    first = magic_bytes(path)
    with contextlib.ExitStack() as closing:
        try:
            stream: Any = closing.enter_context(path.open("rb"))
            if first.startswith(b"\x1f\x8b"):
                stream = closing.enter_context(gzip.GzipFile(fileobj=stream))
            elif first.startswith(b"BZh"):
                stream = closing.enter_context(bz2.BZ2File(stream))
            elif first.startswith(b"\xfd7zXZ\x00"):
                stream = closing.enter_context(io.BufferedReader(XzStream(stream, str(path))))
            elif first.startswith(ZIP_MAGIC):
                archive = closing.enter_context(zipfile.ZipFile(stream))
                stream = closing.enter_context(archive.open(data_member(path, archive)))
        except DAMAGE as failure:
            raise _damaged(path, failure) from failure
        yield stream


def data_member(path: Path, archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    """The only data file in a zip. It is read as a stream and never extracted to a path."""
    members = [
        member
        for member in archive.infolist()
        if not member.is_dir()
        and not member.filename.startswith("__MACOSX/")
        and not Path(member.filename).name.startswith(".")
    ]
    known = [member for member in members if Path(member.filename).name == "MiniBooNE_PID.txt"]
    for candidates in (members, known):
        if len(candidates) == 1:
            return bounded(path, candidates[0])
    names = quoted_list([member.filename for member in members]) or "nothing"
    raise UserError(f"{path}: a zip must hold one data file; this one holds {names}")


def bounded(path: Path, member: zipfile.ZipInfo) -> zipfile.ZipInfo:
    """Reject a compression method in which the file dictates how much memory its reader needs."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2):
        raise UserError(f"{path}: {member.filename} uses an unusual compression; zip it again")
    return member


def read_some(path: Path, stream: IO[bytes], size: int) -> bytes:
    """Read `size` bytes, fewer only at the end of the stream; damage is a UserError."""
    parts = []
    try:
        while size > 0 and (part := stream.read(size)):
            parts.append(part)
            size -= len(part)
    except DAMAGE as failure:
        raise _damaged(path, failure) from failure
    return b"".join(parts)


def line_blocks(path: Path) -> Iterator[np.ndarray]:
    """Yield the text of `path` as uint8 arrays of whole lines, each ending in a newline."""
    with open_stream(path) as stream:
        unfinished: list[bytes] = []
        pending = 0
        at_start = True
        while block := read_some(path, stream, BLOCK_BYTES):
            if at_start:
                block = _check_start(path, block)
                at_start = False
            end = block.rfind(b"\n") + 1
            if end:
                yield np.frombuffer(b"".join([*unfinished, block[:end]]), np.uint8)
                unfinished, pending = [], 0
            unfinished.append(block[end:])
            pending += len(block) - end
            if pending > MAX_LINE_BYTES:
                raise UserError(
                    f"{path}: a line is longer than {MAX_LINE_BYTES // 2**20} MiB; "
                    "is this a text file with one row per line?"
                )
        if at_start:
            raise UserError(f"{path}: the file is empty")
        if pending:
            yield np.frombuffer(b"".join([*unfinished, b"\n"]), np.uint8)


def _check_start(path: Path, block: bytes) -> bytes:
    if block.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise UserError(f"{path}: the text is UTF-16; save it as UTF-8")
    if b"\0" in block:
        raise UserError(f"{path}: not a text file (it has zero bytes); give its format")
    return block.removeprefix(BYTE_ORDER_MARK)


def _damaged(path: Path, failure: BaseException) -> UserError:
    if isinstance(failure, EOFError):
        return UserError(f"{path}: the compressed file ends too early; fetch it again")
    return UserError(
        f"{path}: the file is damaged or cannot be read ({one_line(failure)}); fetch it again"
    )


class XzStream(io.RawIOBase):
    """The text of an xz file, like lzma.LZMAFile, but with bounded memory."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file = file
        self._name = name
        self._decompressor = self._new()

    def readable(self) -> bool:
        """See `io.IOBase`."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read some bytes into `buffer`; returns their number, 0 at the end."""
        while True:
            if self._decompressor.eof:
                rest = self._decompressor.unused_data.lstrip(b"\0") or self._after_padding()
                if not rest:
                    return 0
                self._decompressor = self._new()
                data = rest
            else:
                data = self._file.read(XZ_READ_BYTES) if self._decompressor.needs_input else b""
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
                f"{self._name}: needs more than {XZ_MEMORY_LIMIT // 2**20} MiB to be decompressed; "
                "compress it again with a smaller dictionary, such as that of xz -9"
            ) from problem

    def _after_padding(self) -> bytes:
        while data := self._file.read(XZ_READ_BYTES):
            if rest := data.lstrip(b"\0"):
                return rest
        return b""

    def _new(self) -> lzma.LZMADecompressor:
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY_LIMIT)
