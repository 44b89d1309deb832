"""The files behind a source, and what tells their content from that of others."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from bigsvm.preparation.sources import SOURCES, find, locate
from bigsvm.terminal.progress import Progress

SYNTHETIC = "synthetic"
PARTS = ("train", "test")
_AT_A_TIME = 2**22


def files_of(source: str | Path, progress: Progress) -> dict[str, Path]:
    """The files of a source by part, downloaded where need be; made-up data has none."""
    if source == SYNTHETIC:
        return {}
    if str(source) not in SOURCES:
        return {"train": Path(source)}
    found = locate(
        str(source), lambda *done: progress(f"downloading bytes of {done[0]}", *done[1:])
    )
    return dict(zip(PARTS, found, strict=False))


def files_there(source: str) -> dict[str, Path]:
    """Those of them that are on this machine now."""
    if source == SYNTHETIC:
        return {}
    known = SOURCES.get(source)
    found = [find(file) for file in known.files] if known else [Path(source)]
    parts = zip(PARTS, found, strict=False)
    return {part: path for part, path in parts if path is not None and path.is_file()}


def digests_of(files: Mapping[str, Path], progress: Progress) -> dict[str, str]:
    """SHA-256 of each file.

    Not its size and time: the same file, copied or touched, gives the same store, and a run goes
    on; a file that was written anew gives another.
    """
    return {part: _digest_of(path, progress) for part, path in files.items()}


def _digest_of(path: Path, progress: Progress) -> str:
    digest = hashlib.sha256()
    size = path.stat().st_size
    done = 0
    with path.open("rb", buffering=0) as file:
        while piece := file.read(_AT_A_TIME):
            digest.update(piece)
            done += len(piece)
            progress(f"checking bytes of {path.name}", done, size)
    return digest.hexdigest()
