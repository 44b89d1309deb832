"""Data sets known by name: where their files are, and where to download them.

The cache directory is not left to platformdirs: it would save no code, since a user without a home
directory needs our own message anyway, and existing caches would move.
"""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bigsvm.core.errors import BeingWritten, UserError
from bigsvm.core.labels import Label
from bigsvm.core.messages import Progress
from bigsvm.preparation.download import download
from bigsvm.readers import Format
from bigsvm.tables.files import SourceName, expand, is_table_source

SYNTHETIC = "synthetic"
PARTS = ("train", "test")
_READ_BYTES = 2**22

LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/"
UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/"


@dataclass(frozen=True)
class SourceFile:
    """One file: the names it may have in a directory (the first one found is used), and its URL.

    A download is stored under `names[download_as]`. The hash is given only if it was verified that
    the URL serves that very file.
    """

    names: tuple[str, ...]
    url: str
    sha256: str | None = None
    download_as: int = 0


@dataclass(frozen=True)
class Source:
    """A named data set, and the defaults for reading it."""

    name: str
    train: SourceFile
    test: SourceFile | None
    format: Format
    positive: Label | None
    drop_value: float | None = None

    @property
    def files(self) -> tuple[SourceFile, ...]:
        """The training file and, if there is one, the test file."""
        return (self.train,) if self.test is None else (self.train, self.test)


def _libsvm(name: str, file: str, positive: Label = 1) -> Source:
    return Source(name, SourceFile((file,), LIBSVM + file), None, "libsvm", positive)


def _uci(name: str, path: str, positive: Label) -> Source:
    return Source(name, SourceFile((Path(path).name,), UCI + path), None, "csv", positive)


_MINIBOONE = Source(
    "miniboone",
    SourceFile(
        (
            "MiniBooNE_PID.txt",
            "miniboone+particle+identification.zip",
            "MiniBooNE_PID_subset.zip",
        ),
        "https://archive.ics.uci.edu/static/public/199/miniboone+particle+identification.zip",
        download_as=1,
    ),
    None,
    "miniboone",
    "signal",
    drop_value=-999.0,
)

_IJCNN1 = Source(
    "ijcnn1",
    SourceFile(("ijcnn1.trn.bz2", "ijcnn1.bz2"), LIBSVM + "ijcnn1.bz2", download_as=1),
    SourceFile(("ijcnn1.tst.bz2", "ijcnn1.t.bz2"), LIBSVM + "ijcnn1.t.bz2", download_as=1),
    "libsvm",
    1,
)

_A9A = Source(
    "a9a",
    SourceFile(("a9a",), LIBSVM + "a9a"),
    SourceFile(("a9a.t",), LIBSVM + "a9a.t"),
    "libsvm",
    1,
)

SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        _MINIBOONE,
        _IJCNN1,
        _A9A,
        _uci("covtype", "covtype/covtype.data.gz", 2),
        _uci("magic", "magic/magic04.data", "g"),
        _libsvm("australian", "australian"),
        _libsvm("breast-cancer", "breast-cancer_scale"),
        _libsvm("diabetes", "diabetes_scale"),
        _libsvm("german", "german.numer"),
        _libsvm("heart", "heart_scale"),
        _uci("ionosphere", "ionosphere/ionosphere.data", "g"),
        _uci("iris", "iris/iris.data", "Iris-setosa"),
        _libsvm("mushrooms", "mushrooms", positive=2),
        _uci("sonar", "undocumented/connectionist-bench/sonar/sonar.all-data", "M"),
    )
}


def cache_dir() -> Path:
    """The directory for downloads and stores: BIGSVM_CACHE, or else ~/.cache/bigsvm."""
    named = os.environ.get("BIGSVM_CACHE")
    if named:
        return Path(named)
    try:
        return Path.home() / ".cache" / "bigsvm"
    except RuntimeError as homeless:  # an arbitrary user id in a container
        raise UserError(
            "this user has no home directory for downloads and stores; set BIGSVM_CACHE to a "
            "directory for them"
        ) from homeless


def locate_files(name: str, progress: Progress | None = None) -> list[Path]:
    """The files of the source `name`: [train] or [train, test].

    Looks in the directory BIGSVM_DATA, then in the cache; downloads into the cache what is missing.
    `progress(file name, bytes so far, total bytes or None)` is called during a download.
    """
    if name not in SOURCES:
        raise UserError(f"unknown source {name!r}; known are: {', '.join(sorted(SOURCES))}")
    return [find_or_download(file, progress) for file in SOURCES[name].files]


def find(file: SourceFile) -> Path | None:
    """The path of `file` in the first directory that has it under any of its names."""
    if data := os.environ.get("BIGSVM_DATA"):
        for name in file.names:
            if (Path(data) / name).is_file():
                return Path(data) / name
    for name in file.names:
        if (cache_dir() / name).is_file():
            return cache_dir() / name
    return None


def find_or_download(file: SourceFile, progress: Progress | None = None) -> Path:
    """The path of `file`, which is downloaded into the cache if no directory has it."""
    if (found := find(file)) is not None:
        return found
    data = os.environ.get("BIGSVM_DATA")
    cache = cache_dir()
    target = cache / file.names[file.download_as]
    try:
        download(
            file.url,
            target,
            sha256=file.sha256,
            progress=None if progress is None else lambda *done: progress(target.name, *done),
        )
    except BeingWritten:
        raise
    except UserError as failure:
        raise UserError(
            f"{failure}; or put {' or '.join(file.names)} into {data or cache}"
            + ("" if data else " (or any folder named by BIGSVM_DATA)")
        ) from failure
    return target


def source_files(source: SourceName, progress: Progress) -> dict[str, Path]:
    """The files of a source by part, downloaded if necessary; synthetic data has none."""
    if source == SYNTHETIC:
        return {}
    if is_table_source(source):
        return _parts_of_table(source)
    assert not isinstance(source, tuple)
    if str(source) not in SOURCES:
        return {"train": Path(source)}
    found = locate_files(
        str(source), lambda *done: progress(f"downloading bytes of {done[0]}", *done[1:])
    )
    return dict(zip(PARTS, found, strict=False))


def _parts_of_table(source: SourceName) -> dict[str, Path]:
    """The first file is `train`; the others have a number."""
    files = expand(source)
    return {f"train {k}" if k > 1 else "train": path for k, path in enumerate(files, start=1)}


def local_files(source: str) -> dict[str, Path]:
    """The files of a source that are on this machine now, by part."""
    if source == SYNTHETIC:
        return {}
    if is_table_source(source):
        return _parts_of_table(source)
    known = SOURCES.get(source)
    found = [find(file) for file in known.files] if known else [Path(source)]
    parts = zip(PARTS, found, strict=False)
    return {part: path for part, path in parts if path is not None and path.is_file()}


def file_digests(files: Mapping[str, Path], progress: Progress) -> dict[str, str]:
    """SHA-256 of each file.

    Not size and time: a file that was copied or touched gives the same store, so that a run can be
    resumed, and a file with new content gives another.
    """
    return {part: _digest(path, progress) for part, path in files.items()}


def _digest(path: Path, progress: Progress) -> str:
    digest = hashlib.sha256()
    size = path.stat().st_size
    done = 0
    with path.open("rb", buffering=0) as file:
        while piece := file.read(_READ_BYTES):
            digest.update(piece)
            done += len(piece)
            progress(f"checking bytes of {path.name}", done, size)
    return digest.hexdigest()
