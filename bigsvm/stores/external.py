"""A store is read only from the path that the user gave.

An HDF5 file can refer to other files: by external links, by datasets stored in another file, by
virtual datasets assembled from several. A Zarr store can have symlinks in place of chunks. In an
untrusted file, each of these could bring any file that the user can read, as numbers, into a model
that is later published. They are rejected unless BIGSVM_ALLOW_EXTERNAL=1 is set.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from bigsvm.core.errors import UserError

ALLOW = "BIGSVM_ALLOW_EXTERNAL"
_MAX_LINKS = 100  # along one path; HDF5 itself follows fewer


def external_allowed() -> bool:
    """Whether the user allows other files to be read."""
    return os.environ.get(ALLOW, "0") not in ("", "0")


def reject_external_links(group: Any, name: str, where: str) -> None:
    """Reject the path `name` in an HDF5 group if a link on it leads to another file.

    Examines link by link without following any, since following one opens the other file.
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
            return  # the caller reports what is missing
        kind = here.id.links.get_info(os.fsencode(part)).type
        if kind == h5py.h5l.TYPE_SOFT and links < _MAX_LINKS:
            target = os.fsdecode(here.id.links.get_val(os.fsencode(part)))
            parts = target.split("/") + parts
            here = here.file["/"] if target.startswith("/") else here
            links += 1
        elif kind == h5py.h5l.TYPE_HARD:
            here = here[part]
        else:
            raise _refused(f"{where}/{name}", "is a link to another file")


def reject_external_storage(array: Any, where: str) -> None:
    """Reject an HDF5 dataset whose content is, or may be, in another file."""
    if external_allowed():
        return
    if array.external:
        raise _refused(where, f"is stored in another file, {array.external[0][0]!r}")
    if array.is_virtual:
        raise _refused(where, "is a virtual dataset, which may be assembled from other files")


def reject_symlinks(array: Any, where: str) -> None:
    """Reject a local Zarr array that symlinks take from outside its store."""
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
        f"{where}: {what}; an untrusted file could use this to read your other files, so it needs "
        f"{ALLOW}=1 in the environment"
    )
