"""Downloads against a real server on this machine, one that can misbehave."""

import fcntl
import hashlib
import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from bigsvm.core.errors import UserError
from bigsvm.preparation import download as module
from bigsvm.preparation.download import download

CONTENT = bytes(range(256)) * 4000


@dataclass
class Site:
    """What the server serves, how it behaves, and what it was asked."""

    content: bytes = CONTENT
    etag: str | None = '"one"'
    ranges: bool = True
    cuts: list[int] = field(default_factory=list)
    status: int = 200
    redirect: str | None = None
    length: str | None = None  # what it claims, where that is not the truth
    asked: list[str | None] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def site() -> Iterator[Site]:
    state = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers.get("Range")
            state.asked.append(asked)
            if state.redirect or state.status != 200:
                self.send_response(302 if state.redirect else state.status)
                if state.redirect:
                    self.send_header("Location", state.redirect)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            start = 0
            if state.ranges and asked and self.headers.get("If-Range") == state.etag:
                start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1])  # type: ignore[index]
            body = state.content[start:]
            if not body:
                self.send_response(416)
            elif start:
                self.send_response(206)
                end, total = len(state.content) - 1, len(state.content)
                self.send_header("Content-Range", f"bytes {start}-{end}/{total}")
            else:
                self.send_response(200)
            if state.etag:
                self.send_header("ETag", state.etag)
            self.send_header("Content-Length", state.length or str(len(body)))
            self.end_headers()
            self.wfile.write(body[: state.cuts.pop(0)] if state.cuts else body)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        state.url = f"http://127.0.0.1:{server.server_port}/data.bin"
        yield state
        server.shutdown()


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS_BETWEEN_ATTEMPTS", 0)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_whole_download(site: Site, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    target = tmp_path / "new" / "data.bin"
    digest = hashlib.sha256(CONTENT).hexdigest()
    download(site.url, target, digest.upper(), lambda *done: seen.append(done))
    assert target.read_bytes() == CONTENT
    assert names(target.parent) == ["data.bin"]
    assert seen[0] == (0, len(CONTENT))
    assert seen[-1] == (len(CONTENT), len(CONTENT))


def test_cut_connection_is_continued_at_once(site: Site, tmp_path: Path) -> None:
    site.cuts = [300_000, 200_000]
    download(site.url, tmp_path / "data.bin", hashlib.sha256(CONTENT).hexdigest())
    assert (tmp_path / "data.bin").read_bytes() == CONTENT
    assert site.asked == [None, "bytes=300000-", "bytes=500000-"]


def test_given_up_download_is_continued_by_the_next_call(site: Site, tmp_path: Path) -> None:
    site.cuts = [300_000, 0, 0]
    with pytest.raises(UserError, match=r"after 300000 bytes.*run it again"):
        download(site.url, tmp_path / "data.bin")
    assert names(tmp_path) == [".data.bin.part", ".data.bin.part.json"]
    site.asked.clear()
    download(site.url, tmp_path / "data.bin")
    assert site.asked == ["bytes=300000-"]
    assert (tmp_path / "data.bin").read_bytes() == CONTENT
    assert names(tmp_path) == ["data.bin"]


@pytest.mark.parametrize("change", ["no ranges", "other version", "no version", "shorter", "weak"])
def test_what_cannot_be_continued_starts_afresh(site: Site, tmp_path: Path, change: str) -> None:
    if change == "no version":
        site.etag = None
    if change == "weak":
        site.etag = 'W/"one"'
    site.cuts = [300_000, 0, 0]
    with pytest.raises(UserError):
        download(site.url, tmp_path / "data.bin")
    part = tmp_path / ".data.bin.part"
    if change in ("no ranges", "no version", "weak"):
        # These start over with every request, and the last one brought nothing.
        part.write_bytes(b"leftover of another time")
        site.ranges = change != "no ranges"
    elif change == "other version":
        site.etag, site.content = '"two"', CONTENT[::-1]
    else:
        site.content = CONTENT[:1000]
    download(site.url, tmp_path / "data.bin")
    assert (tmp_path / "data.bin").read_bytes() == site.content
    assert names(tmp_path) == ["data.bin"]


def test_server_without_ranges_that_always_cuts_ends(site: Site, tmp_path: Path) -> None:
    site.ranges = False
    site.cuts = [1000] * 50
    with pytest.raises(UserError, match="1000 of 1024000 bytes"):
        download(site.url, tmp_path / "data.bin")
    assert len(site.asked) < 5


def test_wrong_hash_deletes_the_file(site: Site, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"sha256.*deleted"):
        download(site.url, tmp_path / "data.bin", sha256="0" * 64)
    assert names(tmp_path) == []


@pytest.mark.parametrize(("status", "message"), [(404, "404 Not Found"), (503, "503 Service")])
def test_refusing_server(site: Site, tmp_path: Path, status: int, message: str) -> None:
    site.status = status
    with pytest.raises(UserError, match=message):
        download(site.url, tmp_path / "data.bin")
    assert names(tmp_path) == []


def test_no_server(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/data.bin"
    with pytest.raises(UserError, match="refused"):
        download(url, tmp_path / "data.bin")
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    "url",
    ["http://example.org/a", "ftp://127.0.0.1/a", "file:///etc/passwd", "http://127.example/"],
)
def test_unsafe_address(site: Site, tmp_path: Path, url: str) -> None:
    with pytest.raises(UserError, match="only https"):
        download(url, tmp_path / "data.bin")
    site.redirect = url
    with pytest.raises(UserError):
        download(site.url, tmp_path / "data.bin")
    assert names(tmp_path) == []


def test_two_downloads_of_one_file(site: Site, tmp_path: Path) -> None:
    with (tmp_path / ".data.bin.part").open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another process"):
            download(site.url, tmp_path / "data.bin")
    download(site.url, tmp_path / "data.bin")
    assert (tmp_path / "data.bin").read_bytes() == CONTENT


def test_folder_that_cannot_be_made(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot download to"):
        download(site.url, tmp_path / "file" / "data.bin")


@pytest.mark.parametrize("length", ["a lot", "-5", "1e3"])
def test_a_length_that_is_no_number(site: Site, tmp_path: Path, length: str) -> None:
    site.length = length
    download(site.url, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
