"""A store is read from where the user said it is, and from nowhere else.

An HDF5 file can name others: by external links, by datasets whose bytes lie in another file, by
virtual datasets put together from several. A Zarr store can have symlinks for chunks. In a file
from a stranger each of them would bring any file that the user can read, as numbers, into a model
that is given away later. They are refused unless BIGSVM_ALLOW_EXTERNAL=1 says that they are meant.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from bigsvm.core.errors import UserError

ALLOW = "BIGSVM_ALLOW_EXTERNAL"
_MOST_LINKS = 100  # along one path; HDF5 itself follows fewer


def external_allowed() -> bool:
    """Whether the user wants other files to be read."""
    return os.environ.get(ALLOW, "0") not in ("", "0")


def reject_external_links(group: Any, name: str, where: str) -> None:
    """Refuse the path `name` in an HDF5 group where a link on it leads to another file.

    Link by link, before any is followed: following one opens the other file.
    """
    import h5py

    here, parts, links = group, name.split("/"), 0
    if external_allowed():
        return
    while parts and isinstance(here, h5py.Group):
        part = parts.pop(0)
        if part in ("", "."):
            continue
        if not here.id.links.exists(os.fsencode(part)):
            return  # as the caller will find out
        kind = here.id.links.get_info(os.fsencode(part)).type
        if kind == h5py.h5l.TYPE_SOFT and links < _MOST_LINKS:
            target = os.fsdecode(here.id.links.get_val(os.fsencode(part)))
            parts = target.split("/") + parts
            here = here.file["/"] if target.startswith("/") else here
            links += 1
        elif kind == h5py.h5l.TYPE_HARD:
            here = here[part]
        else:
            raise _refused(f"{where}/{name}", "is a link to another file")


def reject_external_storage(array: Any, where: str) -> None:
    """Refuse an HDF5 dataset whose content is not, or not surely, in its own file."""
    if external_allowed():
        return
    if array.external:
        raise _refused(where, f"is stored in another file, {array.external[0][0]!r}")
    if array.is_virtual:
        raise _refused(where, "is put together from other datasets, perhaps of other files")


def reject_symlinks(array: Any, where: str) -> None:
    """Refuse a Zarr array on this machine that symlinks take from outside its store."""
    from zarr.storage import LocalStore

    if external_allowed() or not isinstance(array.store, LocalStore):
        return
    root = Path(array.store.root).resolve()
    folder = root / array.path
    if not folder.resolve().is_relative_to(root):
        raise _refused(where, f"is a symlink to {folder.resolve()}")
    for parent, folders, files in os.walk(folder):
        for name in folders + files:
            path = Path(parent) / name
            if path.is_symlink() and not path.resolve().is_relative_to(root):
                raise _refused(where, f"has a symlink to another file, {path}")


def _refused(where: str, what: str) -> UserError:
    return UserError(
        f"{where}: {what}; a stranger's file could make you give away your own that way, so it is "
        f"read only with {ALLOW}=1 in the environment"
    )
