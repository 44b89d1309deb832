"""Downloading files atomically, with a checksum, and resuming interrupted downloads.

Not left to pooch, which neither resumes a download nor locks it against other processes.
"""

import contextlib
import fcntl
import hashlib
import http.client
import ipaddress
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from bigsvm.core.errors import DISK_FULL, BeingWritten, UserError
from bigsvm.files.atomic import fsync, open_no_symlink

Progress = Callable[[int, int | None], None]

READ_BYTES = 2**18
TIMEOUT_SECONDS = 30.0
MAX_FRUITLESS_ATTEMPTS = 2
SECONDS_BETWEEN_ATTEMPTS = 0.5


class _Interrupted(Exception):
    """The connection was lost; the bytes received so far are kept."""


def download(
    url: str,
    destination: Path,
    sha256: str | None = None,
    progress: Progress | None = None,
) -> None:
    """Fetch `url` into the file `destination`.

    The bytes are written to a hidden `.part` file in the same directory. An interrupted download is
    resumed from it, by this call or a later one, if the server confirms that its file is unchanged.

    Parameters
    ----------
    url : str
        https, or http on this machine.
    destination : Path
        Its directory is created if missing.
    sha256 : str, optional
        A file with another hash is deleted, and is an error.
    progress : callable, optional
        Called as progress(bytes so far, total bytes or None).
    """
    _check_url(url)
    part = destination.with_name(f".{destination.name}.part")
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        with _exclusive(part) as file:
            if not destination.exists():
                _fetch_all(url, file, _version_file(part), progress)
                _check_hash(file, sha256, url)
                os.fsync(file.fileno())
                part.replace(destination)
                fsync(destination.parent)
                _version_file(part).unlink(missing_ok=True)
    except OSError as failure:
        if failure.errno in DISK_FULL:
            raise OSError(failure.errno, failure.strerror, str(destination)) from failure
        raise UserError(f"cannot download to {destination}: {failure}") from failure


@contextlib.contextmanager
def _exclusive(part: Path) -> Iterator[IO[bytes]]:
    """Open and lock the `.part` file; an error if another process is writing it."""
    with open_no_symlink(part, "a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BeingWritten(
                f"{part} is being downloaded by another process; wait for it"
            ) from None
        try:
            yield file
        finally:
            # Nothing to resume from: leave nothing behind.
            if part.exists() and part.stat().st_size == 0:
                part.unlink()
                _version_file(part).unlink(missing_ok=True)


def _version_file(part: Path) -> Path:
    """The file that records the URL and version that the `.part` file belongs to."""
    return part.with_name(f"{part.name}.json")


def _fetch_all(url: str, file: IO[bytes], version_file: Path, progress: Progress | None) -> None:
    fruitless = 0
    while True:
        before = file.seek(0, os.SEEK_END)
        try:
            _fetch(url, file, version_file, progress)
            return
        except _Interrupted as cut:
            file.flush()
            have = file.seek(0, os.SEEK_END)
            fruitless = 0 if have > before else fruitless + 1
            if fruitless >= MAX_FRUITLESS_ATTEMPTS:
                raise UserError(
                    f"downloading {url} failed after {have} bytes ({cut}); run it again to resume"
                ) from cut
            time.sleep(SECONDS_BETWEEN_ATTEMPTS)


def _fetch(url: str, file: IO[bytes], version_file: Path, progress: Progress | None) -> None:
    """Request the whole file, or the part that is missing."""
    have = file.seek(0, os.SEEK_END)
    version = _read_version(version_file, url)
    headers = {"User-Agent": "bigsvm", "Accept-Encoding": "identity"}
    if have and version:
        headers |= {"Range": f"bytes={have}-", "If-Range": version}
    try:
        response = _opener(url).open(
            urllib.request.Request(url, headers=headers), timeout=TIMEOUT_SECONDS
        )
    except urllib.error.HTTPError as refusal:
        refusal.close()
        if refusal.code == 416 and have:
            file.truncate(0)
            raise _Interrupted("the server has another version of the file") from refusal
        if refusal.code >= 500:
            raise _Interrupted(f"the server says {refusal.code} {refusal.reason}") from refusal
        raise UserError(
            f"cannot download {url}: the server says {refusal.code} {refusal.reason}"
        ) from refusal
    except (urllib.error.URLError, http.client.HTTPException, OSError) as failure:
        raise _Interrupted(str(getattr(failure, "reason", failure))) from failure
    with response:
        resumed = response.status == 206 and (
            response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        )
        if not resumed:
            if response.status != 200:
                raise UserError(f"cannot download {url}: unexpected answer {response.status}")
            file.truncate(0)
            have = 0
            _write_version(version_file, url, response.headers)
        total = None if response.length is None else have + response.length
        _receive(response, file, have, total, progress)


def _receive(
    response: Any, file: IO[bytes], have: int, total: int | None, progress: Progress | None
) -> None:
    while True:
        if progress:
            progress(have, total)
        try:
            piece = response.read(READ_BYTES)
        except (http.client.HTTPException, OSError) as failure:
            raise _Interrupted(str(failure)) from failure
        if not piece:
            break
        file.write(piece)
        have += len(piece)
    file.flush()
    if total is not None and have < total:
        raise _Interrupted(f"the connection was cut at {have} of {total} bytes")


def _read_version(version_file: Path, url: str) -> str | None:
    try:
        content = json.loads(version_file.read_text())
        return str(content["version"]) if content["url"] == url and content["version"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write_version(version_file: Path, url: str, headers: Any) -> None:
    tag = headers.get("ETag")
    # A weak tag does not guarantee identical bytes.
    version = tag if tag and not tag.startswith("W/") else headers.get("Last-Modified")
    with open_no_symlink(version_file, "w") as file:
        file.write(json.dumps({"url": url, "version": version}))


def _check_hash(file: IO[bytes], expected: str | None, url: str) -> None:
    if expected is None:
        return
    file.seek(0)
    digest = hashlib.sha256()
    while piece := file.read(READ_BYTES):
        digest.update(piece)
    found = digest.hexdigest()
    if found != expected.lower():
        file.truncate(0)
        raise UserError(f"{url}: the file has sha256 {found}, expected {expected}; it was deleted")


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(parts.hostname)):
        return
    raise UserError(f"refusing to download {url}: only https URLs are safe")


def _is_loopback(host: str | None) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        _check_url(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener(url: str) -> urllib.request.OpenerDirector:
    # A proxy cannot reach servers on this machine.
    local = _is_loopback(urlsplit(url).hostname)
    proxies = [urllib.request.ProxyHandler({})] if local else []
    return urllib.request.build_opener(_SafeRedirects, *proxies)
