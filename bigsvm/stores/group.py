"""Finding a group in a Zarr or HDF5 store, with a clear word where there is none."""

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
from bigsvm.core.messages import one_line
from bigsvm.core.urls import is_url, strip_file_scheme
from bigsvm.stores.codecs import check_codecs
from bigsvm.stores.external import reject_external_links, reject_external_storage, reject_symlinks

CHECKSUM_KEY = "bigsvm_seal"
_OF_THE_MACHINE = (errno.EIO, errno.ESTALE, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
CHECKSUMMED = ("classes", "feature_names", "fingerprint", "parts", "prepare", "scaling", "source")


@dataclass(frozen=True)
class StoreGroup:
    """A group inside a Zarr or HDF5 store, opened for reading."""

    group: Any  # h5py.Group or zarr.Group: both have keys(), [name] and attrs
    path: str  # for messages: the store's path or address, then the group's name in it
    close: Callable[[], None]
    remote: bool = False

    @property
    def is_zarr(self) -> bool:
        """Whether it is in a Zarr store, not in an HDF5 file."""
        return hasattr(self.group, "metadata")

    def __contains__(self, name: str) -> bool:
        if not self.is_zarr:
            reject_external_links(self.group, name, self.path)
        return name in self.group

    def __getitem__(self, name: str) -> Any:
        """The group or array `name`; KeyError where there is none."""
        if not self.is_zarr:
            reject_external_links(self.group, name, self.path)
        return self.group[name]

    def names(self) -> list[str]:
        """The names of all groups and arrays in this group."""
        try:
            return sorted(self.group.keys())
        except (ValueError, TypeError, KeyError):
            # Zarr opens all of them to say what they are, and one is of a type it does not know.
            root = getattr(self.group.store, "root", None)
            if root is None:
                raise
            folders = (path.parent for path in (Path(root) / self.group.path).glob("*/*"))
            return sorted({folder.name for folder in folders})

    def inside(self, name: str) -> StoreGroup:
        """The group `name` in this one."""
        return replace(self, group=self[name], path=f"{self.path}/{name}")


def open_group(where: str | Path) -> StoreGroup:
    """Open the store at a path or address, or the group in a store that it goes on to."""
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
                f"{path}: is still being prepared, or that was cut off; prepare it again"
            )
        raise UserError(f"{path}: there is no such store; make it with python -m bigsvm.prepare")
    return _open_hdf5(path, "") if path.is_file() else _open_zarr(path)


def _open_hdf5(file: Path, inside: str) -> StoreGroup:
    import h5py

    if not h5py.is_hdf5(file):
        raise UserError(
            f"{file}: is neither a Zarr nor an HDF5 store; make one of it with "
            f"python -m bigsvm.prepare {file} STORE"
        )
    try:
        opened = h5py.File(file, "r")
    except BlockingIOError as locked:
        raise UserError(f"{file}: another program is writing it; wait for its end") from locked
    except OSError as damage:
        raise UserError(f"{file}: cannot be opened ({one_line(damage)})") from damage
    try:
        reject_external_links(opened, inside, str(file))
        group = opened.get(inside) if inside else opened
    except BaseException:
        opened.close()
        raise
    if not isinstance(group, h5py.Group):
        with closing(opened):
            raise _no_group(StoreGroup(opened, str(file), opened.close), inside)
    return StoreGroup(group, str(file / inside), opened.close)


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


def _open_remote(address: str) -> StoreGroup:
    from bigsvm.stores.remote import open_remote_store

    store = open_remote_store(address)
    import zarr

    try:
        # Version by version: asked for both at once, one failure would leave the other's behind.
        try:
            group = zarr.open_group(store, mode="r", zarr_format=3)
        except FileNotFoundError:
            group = zarr.open_group(store, mode="r", zarr_format=2)
    except FileNotFoundError as missing:
        raise UserError(
            f"{address}: there is no Zarr group; check the address, and that the copy is complete"
        ) from missing
    except Unreachable:
        raise
    except (OSError, ValueError, KeyError) as problem:
        raise UserError(
            f"{address}: cannot be opened as a Zarr group ({one_line(problem)})"
        ) from problem
    return StoreGroup(group, address.rstrip("/"), store.close, remote=True)


def _no_group(place: StoreGroup, inside: str) -> UserError:
    return UserError(f"{place.path}: there is no group {inside!r} in it{_what_it_has(place)}")


def _what_it_has(place: StoreGroup) -> str:
    with warnings.catch_warnings(), suppress(Exception):  # not every server lists what it has
        warnings.simplefilter("ignore")  # of Zarr, at strangers' files: one line is enough
        return f"; it has: {', '.join(place.names()) or 'nothing'}"
    return ""


def open_array(place: StoreGroup, name: str) -> Any:
    """The array `name` in a group, if reading it runs no code and opens no file of others."""
    with suppress(KeyError):
        found = place[name]
        if hasattr(found, "shape"):
            where = f"{place.path}/{name}"
            if place.is_zarr:
                check_codecs(found, where)
                reject_symlinks(found, where)
            else:
                reject_external_storage(found, where)
            return found
    raise UserError(f"{place.path}: there is no array {name!r} in it{_what_it_has(place)}")


def read_attributes(place: StoreGroup) -> dict[str, Any]:
    """The attributes that `prepare` has written to a group; of other arrays none is looked at.

    HDF5 has no lists of mixed things, so there they are JSON text.
    """
    if not _are_ours(place.group.attrs):
        return {}
    about = dict(place.group.attrs)
    mixed = ("classes", "feature_names", "files", "parts", "scaling", "prepare", REST_IS_A_LABEL)
    for key in mixed:
        if isinstance(about.get(key), str):
            about[key] = json.loads(about[key])
    if CHECKSUM_KEY in about and about[CHECKSUM_KEY] != attributes_checksum(about):
        raise UserError(
            f"{place.path}: its attributes are not what was written; the store is damaged, make "
            "it again"
        )
    return about


def _are_ours(found: Mapping[str, Any]) -> bool:
    """Whether attributes are those of `prepare`: names such as `classes` and `scaling` are common.

    The seal tells. Where it is lost, or from before there was one, the fingerprint does.
    """
    if CHECKSUM_KEY in found:
        return True
    fingerprint = found["fingerprint"] if "fingerprint" in found and "classes" in found else None
    return isinstance(fingerprint, str) and re.fullmatch("[0-9a-f]{64}", fingerprint) is not None


def attributes_checksum(about: Mapping[str, Any]) -> str:
    """A checksum of the attributes that `prepare` writes; others may be added."""
    written = {key: about.get(key) for key in CHECKSUMMED}
    return hashlib.sha256(json.dumps(written, sort_keys=True).encode()).hexdigest()


@contextmanager
def wrap_read_errors(where: str) -> Iterator[None]:
    """Blame the store at `where` for whatever goes wrong inside."""
    try:
        yield
    except (UserError, Unreachable):
        raise
    except Exception as damage:
        if isinstance(damage, MemoryError) or getattr(damage, "errno", None) in _OF_THE_MACHINE:
            raise
        # Zarr and h5py raise errors of many kinds at metadata that make no sense.
        raise UserError(
            f"{where}: cannot be read ({one_line(damage)}); the store is damaged, make it again"
        ) from damage
