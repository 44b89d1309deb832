"""Named sources: found where they should be, and what they should be."""

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest

from bigsvm.core.errors import UserError
from bigsvm.preparation import download as download_module
from bigsvm.preparation import sources
from bigsvm.preparation.sources import SOURCES, SourceFile, find_or_download, locate_files
from bigsvm.readers import ReadOptions, open_reader


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BIGSVM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(download_module, "SECONDS_BETWEEN_ATTEMPTS", 0)
    return tmp_path / "cache"


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_every_source_is_found_and_read(data_dir: Path, name: str) -> None:
    source = SOURCES[name]
    paths = locate_files(name)
    assert len(paths) == len(source.files)
    for path in paths:
        assert path.parent == data_dir
        batch = next(iter(open_reader(path, ReadOptions(format=source.format)).batches()))
        assert source.positive in batch.y.tolist()


def test_addresses_are_safe_and_distinct() -> None:
    urls = [file.url for source in SOURCES.values() for file in source.files]
    assert len(set(urls)) == len(urls)
    assert all(urlsplit(url).scheme == "https" for url in urls)


def test_only_miniboone_drops_rows(data_dir: Path) -> None:
    assert [name for name, source in SOURCES.items() if source.drop_value is not None] == [
        "miniboone"
    ]
    [path] = locate_files("miniboone")
    value = SOURCES["miniboone"].drop_value
    dropped = sum(
        int(np.all(batch.x == value, axis=1).sum()) for batch in open_reader(path).batches()
    )
    assert dropped == 173


def test_data_folder_comes_before_cache(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BIGSVM_DATA", str(tmp_path / "data"))
    for folder in (own_cache, tmp_path / "data"):
        folder.mkdir()
        (folder / "heart_scale").write_text("1 1:1\n")
    assert locate_files("heart") == [tmp_path / "data" / "heart_scale"]
    (tmp_path / "data" / "heart_scale").unlink()
    assert locate_files("heart") == [own_cache / "heart_scale"]
    for name in ("MiniBooNE_PID_subset.zip", "MiniBooNE_PID.txt"):
        (own_cache / name).touch()
    assert locate_files("miniboone") == [own_cache / "MiniBooNE_PID.txt"]


def test_missing_file_is_downloaded_into_the_cache(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BIGSVM_DATA", raising=False)
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "heart_scale").write_text("1 1:1\n-1 2:1\n")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "served"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/"
        file = SourceFile(("hidden_name", "heart"), url + "heart_scale", download_as=1)
        seen: list[str] = []
        path = find_or_download(file, lambda name, done, total: seen.append(name))
        assert path == own_cache / "heart"
        assert path.read_text() == "1 1:1\n-1 2:1\n"
        assert set(seen) == {"heart"}
        missing = SourceFile(("gone_1", "gone_2"), url + "gone")
        with pytest.raises(UserError, match=r"404.*put gone_1 or gone_2 into .*cache") as caught:
            find_or_download(missing)
        assert "BIGSVM_DATA" in str(caught.value)
        server.shutdown()


def test_no_network_says_what_to_put_where(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BIGSVM_DATA", raising=False)
    gone = SourceFile(("heart_scale",), "http://127.0.0.1:9/heart_scale")
    monkeypatch.setitem(SOURCES, "heart", sources.Source("heart", gone, None, "libsvm", positive=1))
    with pytest.raises(UserError, match=r"put heart_scale into .*cache") as caught:
        locate_files("heart")
    assert "\n" not in str(caught.value)


def test_unknown_source_names_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"australian.*sonar"):
        locate_files("hart")
