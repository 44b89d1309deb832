"""Real files of every format read whole and exactly; compressed and damaged ones."""

import bz2
import gzip
import lzma
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bigsvm.readers import ReadOptions, decompress
from bigsvm.readers.detect import detect_format
from tests.support.reading import read, refusal, write


@pytest.mark.parametrize(
    ("name", "d", "counts"),
    [
        ("MiniBooNE_PID_subset.zip", 50, {"signal": 36499, "background": 36499}),
        ("ijcnn1.trn.bz2", 22, {-1.0: 45137, 1.0: 4853}),
        ("ijcnn1.tst.bz2", 22, {-1.0: 82989, 1.0: 8712}),
        ("magic04.data", 10, {"g": 12332, "h": 6688}),
        ("australian", 14, {-1.0: 383, 1.0: 307}),
        ("breast-cancer_scale", 10, {-1.0: 444, 1.0: 239}),
        ("diabetes_scale", 8, {1.0: 500, -1.0: 268}),
        ("german.numer", 24, {-1.0: 700, 1.0: 300}),
        ("heart_scale", 13, {-1.0: 150, 1.0: 120}),
        ("ionosphere.data", 34, {"g": 225, "b": 126}),
        ("iris.data", 4, {"Iris-setosa": 50, "Iris-versicolor": 50, "Iris-virginica": 50}),
        ("mushrooms", 112, {1.0: 3916, 2.0: 4208}),
        ("sonar.all-data", 60, {"M": 111, "R": 97}),
    ],
)
def test_real_file_has_the_rows_and_classes_it_should(
    data_dir: Path, name: str, d: int, counts: dict[object, int]
) -> None:
    x, y = read(data_dir / name)
    assert x.shape == (sum(counts.values()), d)
    assert Counter(y.tolist()) == counts


def test_miniboone_values_equal_python_floats(data_dir: Path) -> None:
    path = data_dir / "MiniBooNE_PID_subset.zip"
    x, y = read(path)
    with zipfile.ZipFile(path) as archive:
        lines = archive.read("MiniBooNE_PID.txt").split(b"\n")[1:]
    for row in (0, 1, 36_498, 36_499, 50_000, 72_997):
        assert x[row].tolist() == [float(token) for token in lines[row].split()]
    assert (x == -999).all(axis=1).sum() == 173
    assert (y[:36_499] == "signal").all()


def test_real_libsvm_and_csv_values_equal_python_floats(data_dir: Path) -> None:
    x, _ = read(data_dir / "heart_scale")
    for row, line in enumerate((data_dir / "heart_scale").read_text().splitlines()):
        expected = [0.0] * 13
        for pair in line.split()[1:]:
            index, value = pair.split(":")
            expected[int(index) - 1] = float(value)
        assert x[row].tolist() == expected
    x, _ = read(data_dir / "magic04.data")
    expected_rows = [
        [float(field) for field in line.split(",")[:-1]]
        for line in (data_dir / "magic04.data").read_text().split()
    ]
    assert x.tolist() == expected_rows


def test_miniboone_counts_are_checked(tmp_path: Path) -> None:
    x, y = read(write(tmp_path, "  2 1\r\n 1 2.5 3\r\n4e0  5 6\r\n7 8 -9\r\n\r\n"))
    assert x.tolist() == [[1, 2.5, 3], [4, 5, 6], [7, 8, -9]]
    assert y.tolist() == ["signal", "signal", "background"]
    assert "there are 2" in refusal(write(tmp_path, "2 1\n1 2 3\n4 5 6\n"))
    assert "more" in refusal(write(tmp_path, "1 1\n1 2 3\n4 5 6\n7 8 9\n"))
    assert "line 3" in refusal(write(tmp_path, "2 1\n1 2 3\n4 5\n7 8 9\n"))
    assert "two counts" in refusal(write(tmp_path, "1 2 3\n"), format="miniboone")


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_text(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    lines = b"".join(b"%d 1:%d 2:0.5\n" % (k % 2, k) for k in range(30_000))
    whole = compress(lines)
    # The name says nothing.
    x, _ = read(write(tmp_path, whole, "data.plain"))
    assert (x[:, 0] == np.arange(30_000)).all()
    assert read(write(tmp_path, whole + compress(b"1 1:7\n"), "two"))[0].shape == (30_001, 2)
    assert "too early" in refusal(write(tmp_path, whole[: len(whole) // 2], "half"))
    assert "too early" in refusal(write(tmp_path, whole[:-3], "nearly"))
    damaged = bytearray(whole)
    damaged[len(whole) // 2 : len(whole) // 2 + 20] = b"\xaa" * 20
    refusal(write(tmp_path, bytes(damaged), "damaged"))


def test_zip_members(tmp_path: Path) -> None:
    path = tmp_path / "t.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../../evil/data.csv", "a,b,y\n1,2,u\n")
    assert read(path)[0].tolist() == [[1, 2]]
    assert [found.name for found in tmp_path.rglob("*")] == ["t.zip"]
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("other.csv", "1")
    assert "other.csv" in refusal(path)
    refusal(write(tmp_path, path.read_bytes()[:-30], "cut.zip"))


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "empty"),
        (b"\n \n\r\n", "no rows"),
        (gzip.compress(b"", mtime=0), "no rows"),
        (b"a,b,y\n", "no rows"),
        (b"# only a comment\n", "no rows"),
        (b"justoneword\n", "format"),
        (b"\xff\xfea\0b\0", "text"),
        (b"\x00\x01\x02\x03", "not a text file"),
        (b"\x89HDF\r\n\x1a\n rest", "store already"),
    ],
)
def test_file_that_holds_no_data(tmp_path: Path, content: bytes, word: str) -> None:
    assert word in refusal(write(tmp_path, content, "t"))


def test_path_that_is_no_file(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "nothing")
    assert "not a file" in refusal(tmp_path)


def test_endless_line_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decompress, "MAX_LINE_BYTES", 10**6)
    monkeypatch.setattr(decompress, "BLOCK_BYTES", 10**5)
    path = write(tmp_path, gzip.compress(b"1 1:" + b"2" * 20_000_000), "bomb.gz")
    assert "longer than" in refusal(path, format="libsvm")


@pytest.mark.parametrize(
    ("row", "format"),
    [
        ("1 3:0.5", "libsvm"),
        ("1,4 3:0.5 4:1", "libsvm"),
        ("spam 3:-.5", "libsvm"),
        ("3:5", "libsvm"),
        ("e7,1.5,2024-01-02 01:00:00,g", "csv"),
        ("e7,1.5,2024-01-02 01:30,g", "csv"),
        ("7,1.5,2024-01-02 01:30", "csv"),
        ("7;1.5;2024-01-02 01:30", "csv"),
        ("2024-01-02 01:30:00\t5", "csv"),
    ],
)
def test_times_of_day_are_no_libsvm_features(tmp_path: Path, row: str, format: str) -> None:
    path = write(tmp_path, f"{row}\n{row}\n")
    assert detect_format(path, ReadOptions()) == format
