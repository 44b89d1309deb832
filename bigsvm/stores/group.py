"""Opening groups and arrays of a Zarr or HDF5 store, with clear messages for what is missing."""

from __future__ import annotations

import errno
import hashlib
import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bigsvm.core.errors import Unreachable, UserError
from bigsvm.core.labels import REST_IS_A_LABEL
from bigsvm.core.messages import one_line, shell_command
from bigsvm.core.urls import is_url, strip_file_scheme
from bigsvm.stores.codecs import check_codecs
from bigsvm.stores.external import reject_external_links, reject_external_storage, reject_symlinks

# The attribute that holds the checksum of the others; the name is part of the store format.
CHECKSUM_KEY = "bigsvm_seal"
# Errors of the machine, not of the store: the same read may succeed later.
_MACHINE_ERRORS = (errno.EIO, errno.ESTALE, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
# Attributes that HDF5 cannot hold as they are: JSON text in its files.
_AS_JSON = (
    "classes", "encoding", "feature_names", "files", "parts", "scaling", "prepare", REST_IS_A_LABEL
)  # fmt: skip
CHECKSUMMED = ("classes", "feature_names", "fingerprint", "parts", "prepare", "scaling", "source")


@dataclass(frozen=True)
class StoreGroup:
    """A group inside a Zarr or HDF5 store, opened for reading."""

    handle: Any  # h5py.Group or zarr.Group: both have keys(), [name] and attrs
    path: str  # for messages: the path or URL of the store, then the name of the group in it
    close: Callable[[], None]
    remote: bool = False

    @property
    def is_zarr(self) -> bool:
        """Whether it belongs to a Zarr store rather than an HDF5 file."""
        return hasattr(self.handle, "metadata")

    def __contains__(self, name: str) -> bool:
        if not self.is_zarr:
            reject_external_links(self.handle, name, self.path)
        return name in self.handle

    def __getitem__(self, name: str) -> Any:
        """The group or array `name`; KeyError if there is none."""
        if not self.is_zarr:
            reject_external_links(self.handle, name, self.path)
        return self.handle[name]

    def names(self) -> list[str]:
        """The names of all groups and arrays in this group."""
        try:
            return sorted(self.handle.keys())
        except (ValueError, TypeError, KeyError):
            # Zarr opens every member to find its kind, and fails if one has an unknown type.
            root = getattr(self.handle.store, "root", None)
            if root is None:
                raise
            folders = (path.parent for path in (Path(root) / self.handle.path).glob("*/*"))
            return sorted({folder.name for folder in folders})

    def subgroup(self, name: str) -> StoreGroup:
        """The group `name` inside this one."""
        return replace(self, handle=self[name], path=f"{self.path}/{name}")


def open_group(where: str | Path) -> StoreGroup:
    """Open a store by its path or URL, or a group by a path that continues into the store."""
    if is_url(text := strip_file_scheme(str(where))):
        return _open_remote(text)
    path = Path(text)
    if not path.exists():
        for file in path.parents:
            if file.is_file():
                return _open_hdf5(file, path.relative_to(file).as_posix())
            if (file / "zarr.json").exists() or (file / ".zgroup").exists():
                raise _no_group(_open_zarr(file), path.relative_to(file).as_posix())
            if file.is_dir():
                break
        if any(path.with_name(f".{path.name}.{kind}").exists() for kind in ("spill", "partial")):
            raise UserError(
                f"{path}: is still being prepared, or that was interrupted; prepare it again"
            )
        raise UserError(f"{path}: there is no such store; make it with python -m bigsvm.prepare")
    return _open_hdf5(path, "") if path.is_file() else _open_zarr(path)


def _open_hdf5(file: Path, name: str) -> StoreGroup:
    import h5py

    if not h5py.is_hdf5(file):
        raise UserError(
            f"{file}: is neither a Zarr nor an HDF5 store; make one of it with "
            f"{shell_command('prepare', file)} STORE"
        )
    try:
        opened = h5py.File(file, "r")
    except BlockingIOError as locked:
        raise UserError(f"{file}: another program is writing it; wait until it ends") from locked
    except OSError as damage:
        raise UserError(f"{file}: cannot be opened ({one_line(damage)})") from damage
    try:
        reject_external_links(opened, name, str(file))
        group = opened.get(name) if name else opened
    except BaseException:
        opened.close()
        raise
    if not isinstance(group, h5py.Group):
        with closing(opened):
            raise _no_group(StoreGroup(opened, str(file), opened.close), name)
    return StoreGroup(group, str(file / name), opened.close)


def _open_zarr(directory: Path) -> StoreGroup:
    import zarr

    try:
        group = zarr.open_group(directory, mode="r")
    except (OSError, ValueError, KeyError) as problem:
        if (directory / "zarr.json").exists() or (directory / ".zgroup").exists():
            raise UserError(
                f"{directory}: cannot be opened as a Zarr group ({one_line(problem)})"
            ) from problem
        raise UserError(f"{directory}: is a folder, but not a Zarr group") from problem
    return StoreGroup(group, str(directory), lambda: None)


def _open_remote(url: str) -> StoreGroup:
    from bigsvm.stores.remote import open_remote_store

    store = open_remote_store(url)
    import zarr

    try:
        # One format at a time: trying both, Zarr would leave one request pending when the other
        # fails.
        try:
            group = zarr.open_group(store, mode="r", zarr_format=3)
        except FileNotFoundError:
            group = zarr.open_group(store, mode="r", zarr_format=2)
    except FileNotFoundError as missing:
        raise UserError(
            f"{url}: there is no Zarr group; check the URL, and that the copy is complete"
        ) from missing
    except Unreachable:
        raise
    except (OSError, ValueError, KeyError) as problem:
        raise UserError(
            f"{url}: cannot be opened as a Zarr group ({one_line(problem)})"
        ) from problem
    return StoreGroup(group, url.rstrip("/"), store.close, remote=True)


def _no_group(group: StoreGroup, name: str) -> UserError:
    return UserError(f"{group.path}: there is no group {name!r} in it{_contents(group)}")


def _contents(group: StoreGroup) -> str:
    with warnings.catch_warnings(), suppress(Exception):  # not every server can list a group
        warnings.simplefilter("ignore")  # Zarr warns about foreign files; the message is one line
        return f"; it has: {', '.join(group.names()) or 'nothing'}"
    return ""


def open_array(group: StoreGroup, name: str) -> Any:
    """Open the array `name`, provided that reading it runs no code and opens no other file."""
    with suppress(KeyError):
        found = group[name]
        if hasattr(found, "shape"):
            where = f"{group.path}/{name}"
            if group.is_zarr:
                check_codecs(found, where)
                reject_symlinks(found, where)
            else:
                reject_external_storage(found, where)
            return found
    raise UserError(f"{group.path}: there is no array {name!r} in it{_contents(group)}")


def read_attributes(group: StoreGroup) -> dict[str, Any]:
    """The attributes that `prepare` wrote to a group; empty for groups of any other origin.

    HDF5 attributes cannot hold lists of mixed types, so these are stored as JSON text.
    """
    if not _from_prepare(group.handle.attrs):
        return {}
    about = dict(group.handle.attrs)
    for key in _AS_JSON:
        if isinstance(about.get(key), str):
            about[key] = json.loads(about[key])
    if CHECKSUM_KEY in about and about[CHECKSUM_KEY] != attributes_checksum(about):
        raise UserError(
            f"{group.path}: its attributes are not what was written; the store is damaged, make "
            "it again"
        )
    return about


def _from_prepare(found: Mapping[str, Any]) -> bool:
    """Whether `prepare` wrote the attributes: names such as `classes` and `scaling` are common.

    The checksum shows it; in stores that have none, the fingerprint does.
    """
    if CHECKSUM_KEY in found:
        return True
    fingerprint = found["fingerprint"] if "fingerprint" in found and "classes" in found else None
    return isinstance(fingerprint, str) and re.fullmatch("[0-9a-f]{64}", fingerprint) is not None


def attributes_checksum(about: Mapping[str, Any]) -> str:
    """A checksum of the attributes that `prepare` writes; users may add others."""
    written = {key: about.get(key) for key in CHECKSUMMED}
    # Of a table; other stores have the checksums of before.
    written |= {key: about[key] for key in ("encoding", "label_column") if key in about}
    return hashlib.sha256(json.dumps(written, sort_keys=True).encode()).hexdigest()


@contextmanager
def wrap_read_errors(where: str) -> Iterator[None]:
    """Turn any error in the block into a UserError that names the store at `where`.

    Zarr and h5py raise errors of many types on corrupt data and metadata. Errors of the machine
    are passed on.
    """
    try:
        yield
    except (UserError, Unreachable):
        raise
    except Exception as damage:
        if isinstance(damage, MemoryError) or getattr(damage, "errno", None) in _MACHINE_ERRORS:
            raise
        raise UserError(
            f"{where}: cannot be read ({one_line(damage)}); the store is damaged, make it again"
        ) from damage
