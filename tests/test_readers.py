"""Every format, read whole and exactly, from real files and from nasty ones."""

import bz2
import gzip
import lzma
import math
import re
import struct
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import bigsvm.readers as readers
from bigsvm.errors import UserError
from bigsvm.readers import ReadOptions, decompress, open_reader
from bigsvm.readers.number import EXACT, NOT_A_NUMBER, UNSURE, convert, parse_number


def read(path: Path, **options: object) -> tuple[np.ndarray, np.ndarray]:
    """All rows and labels of a file, with the promises of every batch checked."""
    reader = open_reader(path, ReadOptions(**options))  # type: ignore[arg-type]
    x, y = [np.empty((0, reader.d))], []
    for batch in reader.batches():
        assert batch.x.dtype == np.float64
        assert batch.x.flags.c_contiguous
        assert batch.x.shape[1] == reader.d
        assert batch.x.nbytes <= max(readers.BATCH_BYTES, 8 * reader.d)
        x.append(batch.x)
        y.append(batch.y)
    return np.concatenate(x), np.concatenate(y)


def write(folder: Path, content: bytes | str, name: str = "data.txt") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def refusal(path: Path, **options: object) -> str:
    """The one line with which reading `path` is refused; it names the file."""
    with pytest.raises(UserError) as caught:
        read(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 400
    assert str(path) in message
    return message


# ---------------------------------------------------------------- real files


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


# ---------------------------------------------------------------- numbers


def number(token: str) -> float | None:
    text = np.frombuffer(token.encode(), np.uint8)
    value, state = parse_number(text, 0, len(text))
    if state == UNSURE:
        return float(convert(text, np.array([[0, len(text)]]))[0])
    return value if state == EXACT else None


def same(a: float | None, b: float) -> bool:
    return a is not None and a == b and math.copysign(1, a) == math.copysign(1, b)


@given(st.from_regex(r"\A[+-]?([0-9]{1,25}\.?[0-9]{0,25}|\.[0-9]{1,25})([eE][+-]?[0-9]{1,3})?\Z"))
@example("9007199254740993")
@example("9007199254740992e22")
@example("-0.0")
@example("1e400")
@example("1e-400")
@example("5e-324")
@example("2.4703282292062327e-324")
@example("1.7976931348623159e308")
@example("+8.98846567431158e307")
@example("0." + "0" * 400 + "1e401")
@example("1" + "0" * 330 + "e-330")
@example("1e99999999999999999999")
@example("0e99999999999999999999")
@settings(deadline=None, max_examples=500)
def test_numbers_are_rounded_as_python_does(token: str) -> None:
    assert same(number(token), float(token))


def test_numbers_at_the_edge_of_the_fast_path() -> None:
    rng = np.random.default_rng(0)
    for bits in (51, 53, 54, 55, 60):
        for mantissa in rng.integers(2 ** (bits - 1), 2**bits, size=20).tolist():
            for exponent in (*range(-26, -18), -1, 0, 1, *range(18, 27)):
                token = f"{mantissa}e{exponent}"
                assert same(number(token), float(token)), token
    for small in (1, 7, 123):
        for exponent in range(-30, 31):
            assert same(number(f"{small}e{exponent}"), float(f"{small}e{exponent}"))


@given(st.floats(allow_nan=False, allow_infinity=False))
@settings(deadline=None, max_examples=500)
def test_every_float_survives_being_written(value: float) -> None:
    for token in (repr(value), f"{value:.17e}", f"{value:+.25g}"):
        assert same(number(token), value)


@given(st.text(alphabet="0123456789+-.eE_xnaif ", max_size=8))
@settings(deadline=None, max_examples=500)
def test_only_plain_decimals_are_numbers(token: str) -> None:
    plain = re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", token)
    assert (number(token) is not None) == bool(plain)


def test_many_long_numbers_in_one_file(tmp_path: Path) -> None:
    # More digits than the fast path takes, and more numbers than its list of doubtful ones holds.
    values = np.random.default_rng(0).normal(size=(20_000, 5)) * 1e-30
    path = write(tmp_path, "".join(",".join(map(repr, row)) + ",1\n" for row in values.tolist()))
    x, _ = read(path)
    assert (x == values).all()


# ---------------------------------------------------------------- LIBSVM


finite = st.floats(allow_nan=False, allow_infinity=False)
sparse_row = st.tuples(st.integers(-3, 3), st.dictionaries(st.integers(1, 9), finite, max_size=9))


@given(
    rows=st.lists(sparse_row, min_size=1, max_size=20),
    blank=st.sampled_from([" ", "  ", "\t", " \t "]),
    end=st.sampled_from(["\n", "\r\n", " \n", " # a comment 3:4\n", "\n\n", "\n#1 2:3\n"]),
    block=st.sampled_from([1, 7, 64, 10**6]),
    batch=st.sampled_from([1, 200, 10**6]),
)
@settings(deadline=None, max_examples=150)
def test_libsvm_rows_come_back(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[int, dict[int, float]]],
    blank: str,
    end: str,
    block: int,
    batch: int,
) -> None:
    text = ""
    expected = np.zeros((len(rows), 9))
    for k, (label, pairs) in enumerate(rows):
        text += str(label)
        for index in sorted(pairs):
            text += f"{blank}{index}:{pairs[index]!r}"
            expected[k, index - 1] = pairs[index]
        text += end
    path = write(tmp_path_factory.mktemp("libsvm"), text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decompress, "BLOCK_BYTES", block)
        patch.setattr(readers, "BATCH_BYTES", batch)
        x, y = read(path, format="libsvm", features=9)
    assert (x == expected).all()
    assert y.tolist() == [label for label, _ in rows]


def test_libsvm_width_is_the_largest_index_or_the_one_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path, "1 2:3\n-1 7:1 # 99:1\n+1\n")
    assert read(path)[0].shape == (3, 7)
    assert read(path, features=10)[0].shape == (3, 10)
    assert "line 2" in refusal(path, features=6)


def test_libsvm_without_labels(tmp_path: Path) -> None:
    x, y = read(write(tmp_path, "1:5 2:6\n-1 2:7\n"), with_labels=False)
    assert x.tolist() == [[5, 6], [0, 7]]
    assert y.shape == (0,)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("1 0:5", ["index 0", "'0:5'"]),
        ("1 2:5 2:6", ["index 2", "after"]),
        ("1 3:5 2:6", ["index 2", "after"]),
        ("1 1:abc", ["feature 1", "'abc' is not a number"]),
        ("1 1:nan", ["feature 1", "not finite"]),
        ("1 1:-inf", ["feature 1", "not finite"]),
        ("1 2:1e999", ["feature 2", "too large"]),
        ("1 1:", ["feature 1", "missing"]),
        ("1 x:1", ["'x:1'", "index:value"]),
        ("1 -1:1", ["'-1:1'", "index:value"]),
        ("1 qid:3 1:1", ["'qid:3'", "index:value"]),
        ("1 1:2 5", ["'5'", "index:value"]),
        ("1 :2", ["':2'", "index:value"]),
        ("1 1:2:3", ["feature 1", "not a number"]),
        ("1:2 2:3", ["'1:2'", "label"]),
        ("nan 1:2", ["label", "missing"]),
        ("yes 1:2", ["label is text", "numeric"]),
        ("1 2000000000:1", ["2000000000", "limit", "1000000"]),
        ("1 99999999999999999999999999:1", ["far too large", "limit", "1000000"]),
    ],
)
def test_wrong_libsvm_line_is_named(tmp_path: Path, line: str, words: list[str]) -> None:
    path = write(tmp_path, f"# comment\n1 1:2 3:4\n\n{line}\n-1 1:1\n")
    message = refusal(path, format="libsvm")
    for word in ["line 4", *words]:
        assert word in message


# ---------------------------------------------------------------- CSV


def test_csv_with_header_quotes_bom_windows_line_ends(tmp_path: Path) -> None:
    text = '\ufeff"a b","c,d",kind\r\n\r\n1, 2.5 ,"x ""y"", z"\r\n"3",-4e1,w\r\n\r\n'
    path = write(tmp_path, text, "t.csv")
    x, y = read(path)
    assert x.tolist() == [[1, 2.5], [3, -40]]
    assert y.tolist() == ['x "y", z', "w"]
    reader = open_reader(path)
    assert reader.feature_names == ["a b", "c,d"]
    assert next(reader.batches()).first_row == 3


@pytest.mark.parametrize("column", ["kind", 0, -3, "0"])
def test_label_column_by_name_or_position(tmp_path: Path, column: str | int) -> None:
    path = write(tmp_path, "kind,a,b\nu,1,2\nv,3,4\n", "t.csv")
    x, y = read(path, label_column=column)
    assert x.tolist() == [[1, 2], [3, 4]]
    assert y.tolist() == ["u", "v"]
    assert open_reader(path, ReadOptions(label_column=column)).feature_names == ["a", "b"]


@pytest.mark.parametrize("delimiter", [";", "\t", "|", " ", "  ", ","])
def test_delimiter_is_found(tmp_path: Path, delimiter: str) -> None:
    rows = [list("aby"), list("12u"), list("34v")]
    path = write(tmp_path, "\n".join(delimiter.join(row) for row in rows))
    x, y = read(path)
    assert x.tolist() == [[1, 2], [3, 4]]
    assert y.tolist() == ["u", "v"]


def test_header_is_told_from_data(tmp_path: Path) -> None:
    numbers = write(tmp_path, "1,2,0\n3,4,1\n")
    assert read(numbers)[0].shape == (2, 2)
    assert read(numbers, header=True)[0].shape == (1, 2)
    assert read(numbers, with_labels=False)[0].shape == (2, 3)
    named = write(tmp_path, ",f,y\n0,1,2\n", "pandas.csv")
    assert open_reader(named).feature_names == ["", "f"]
    assert "'f' is not a number" in refusal(write(tmp_path, "1,f,y\n0,1,2\n"))
    assert "'a' is not a number" in refusal(write(tmp_path, "a,f,y\n0,1,2\n"), header=False)


def test_csv_does_not_depend_on_blocks_and_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.random.default_rng(1).normal(size=(300, 3))
    names = ["yes", "no", "a much longer label"]
    text = "a,b,c,y\n" + "".join(
        ",".join(map(repr, row)) + f",{names[k % 3]}\n" for k, row in enumerate(values.tolist())
    )
    path = write(tmp_path, text.rstrip())
    for block in (1, 10, 1000, 10**6):
        for batch in (1, 24 * 7, 10**6):
            monkeypatch.setattr(decompress, "BLOCK_BYTES", block)
            monkeypatch.setattr(readers, "BATCH_BYTES", batch)
            x, y = read(path)
            assert (x == values).all()
            assert y.tolist() == [names[k % 3] for k in range(300)]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("1,2", ["2 fields", "3 are expected"]),
        ("1,2,u,", ["more than the 3 fields"]),
        ("1,2,3,u", ["more than the 3 fields"]),
        ("1,x,u", ["column 2 ('b')", "'x' is not a number"]),
        ("1,1_0,u", ["column 2 ('b')", "'1_0' is not a number"]),
        ("1,0x10,u", ["column 2 ('b')", "'0x10' is not a number"]),
        ("1,,u", ["column 2 ('b')", "missing"]),
        (" ,1,u", ["column 1 ('a')", "missing"]),
        ("NaN,1,u", ["column 1 ('a')", "not finite"]),
        ("1,-Infinity,u", ["column 2 ('b')", "not finite"]),
        ("1,1e309,u", ["column 2 ('b')", "too large"]),
        ("1,2,", ["label is missing"]),
        ("1,2,?", ["label is missing"]),
        ("1,2,7", ["label is numeric"]),
        ('1,"2,u', ["column 2", "not closed"]),
        ('1,"2"3,u', ["column 2", "not closed"]),
        ("1,2," + "u" * 300, ["label is longer"]),
        (b"1,2,\xff\xfe", ["not UTF-8"]),
        (b"1,\xff,u", ["column 2 ('b')", "not a number"]),
    ],
)
def test_wrong_csv_line_is_named(tmp_path: Path, line: str | bytes, words: list[str]) -> None:
    raw = line if isinstance(line, bytes) else line.encode()
    path = write(tmp_path, b"a,b,y\n1,2,u\n\n" + raw + b"\n1,2,v\n", "t.csv")
    message = refusal(path)
    for word in ["line 4", *words]:
        assert word in message


@pytest.mark.parametrize("options", [{"label_column": "z"}, {"label_column": 3}, {"features": 3}])
def test_column_that_is_not_there(tmp_path: Path, options: dict[str, object]) -> None:
    refusal(write(tmp_path, "a,b,y\n1,2,u\n", "t.csv"), **options)


# ---------------------------------------------------------------- MiniBooNE


def test_miniboone_counts_are_checked(tmp_path: Path) -> None:
    x, y = read(write(tmp_path, "  2 1\r\n 1 2.5 3\r\n4e0  5 6\r\n7 8 -9\r\n\r\n"))
    assert x.tolist() == [[1, 2.5, 3], [4, 5, 6], [7, 8, -9]]
    assert y.tolist() == ["signal", "signal", "background"]
    assert "there are 2" in refusal(write(tmp_path, "2 1\n1 2 3\n4 5 6\n"))
    assert "more" in refusal(write(tmp_path, "1 1\n1 2 3\n4 5 6\n7 8 9\n"))
    assert "line 3" in refusal(write(tmp_path, "2 1\n1 2 3\n4 5\n7 8 9\n"))
    assert "two counts" in refusal(write(tmp_path, "1 2 3\n"), format="miniboone")


# ---------------------------------------------------------------- compression, damage


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


# ---------------------------------------------------------------- binary formats


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int16, np.bool_, ">f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type, order: str) -> None:
    monkeypatch.setattr(readers, "BATCH_BYTES", 8 * 4 * 10)
    table = np.random.default_rng(0).integers(0, 2, size=(95, 4)).astype(kind)
    path = tmp_path / "t.npy"
    np.save(path, np.asarray(table, order=order))  # type: ignore[call-overload]
    x, y = read(path)
    assert (x == table[:, :3]).all()
    assert (y == table[:, 3]).all()
    x, y = read(path, label_column=1)
    assert (x == table[:, [0, 2, 3]]).all()
    assert (y == table[:, 1]).all()
    assert (read(path, with_labels=False)[0] == table).all()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save: Callable[..., None]) -> None:
    monkeypatch.setattr(readers, "BATCH_BYTES", 8 * 4 * 10)
    table = np.random.default_rng(0).normal(size=(95, 4)).astype(np.float32)
    labels = np.where(table[:, 0] > 0, "yes", "no")
    path = tmp_path / "t.npz"
    save(path, X=table, y=labels, other=np.zeros(3))
    x, y = read(path)
    assert (x == table).all()
    assert (y == labels).all()
    assert (read(path, with_labels=False)[0] == table).all()
    assert "95 rows" in refusal(path, label_column="other")
    assert "'X', 'y', 'other'" in refusal(path, label_column="missing")


def test_wrong_numpy_files(tmp_path: Path) -> None:
    path = tmp_path / "t.npy"
    table = np.ones((5, 3))
    table[3, 1] = np.nan
    np.save(path, table)
    assert "row 4, feature 2" in refusal(path)
    assert "ends before" in refusal(write(tmp_path, path.read_bytes()[:-8], "cut.npy"))
    assert "not a readable" in refusal(write(tmp_path, path.read_bytes()[:20], "header.npy"))
    np.save(path, np.array([[1, "a"]], object), allow_pickle=True)
    assert "could run code" in refusal(path)
    for wrong in (np.ones(5), np.ones((2, 2, 2)), np.ones((2, 2), complex), np.array([["a", "b"]])):
        np.save(path, wrong)
        assert "two-dimensional numbers" in refusal(path)
    for empty in (np.ones((0, 3)), np.ones((3, 0)), np.ones((3, 1))):
        np.save(path, empty)
        refusal(path)
    np.savez(tmp_path / "f.npz", X=np.asfortranarray(np.ones((5, 3))), y=np.ones(5))
    assert "ascontiguousarray" in refusal(tmp_path / "f.npz")
    np.savez(tmp_path / "n.npz", X=np.ones((5, 3)), y=np.array([1, 2, np.nan, 1, 1]))
    assert "row 3" in refusal(tmp_path / "n.npz")


def test_npy_header_that_promises_too_much_allocates_nothing(tmp_path: Path) -> None:
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 8), }"
    header += b" " * (118 - len(header) - 1) + b"\n"
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header
    assert "ends before" in refusal(write(tmp_path, content, "t.npy"))


def test_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "BATCH_BYTES", 8 * 3 * 10)
    columns = {
        "a": np.arange(95),
        "b": np.arange(95) % 2 == 0,
        "c": pa.array([f"{k}.50" for k in range(95)]).cast(pa.decimal128(8, 2)),
        "kind": pa.array(["u", "v", "w", "u", "v"] * 19).dictionary_encode(),
    }
    path = tmp_path / "data"
    pq.write_table(pa.table(columns), path, row_group_size=33)
    x, y = read(path)
    k = np.arange(95)
    assert (x == np.stack([k, k % 2 == 0, k + 0.5], axis=1)).all()
    assert y.tolist() == ["u", "v", "w", "u", "v"] * 19
    assert open_reader(path).feature_names == ["a", "b", "c"]
    x, y = read(path.rename(tmp_path / "t.parquet"), label_column="kind")
    assert x.shape == (95, 3)
    assert "'kind' holds" in refusal(tmp_path / "t.parquet", label_column="a")
    refusal(write(tmp_path, (tmp_path / "t.parquet").read_bytes()[:-20], "cut.parquet"))


def test_wrong_parquet(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": [1, None], "y": [1, 2]}), path)
    assert "row 2, column 'a'" in refusal(path)
    pq.write_table(pa.table({"a": [1, 2], "y": ["u", None]}), path)
    assert "row 2: the label is missing" in refusal(path)
    pq.write_table(pa.table({"a": [1.0, float("inf")], "y": [1, 2]}), path)
    assert "row 2, feature 1 ('a')" in refusal(path)
    pq.write_table(pa.table({"a": pa.array([], pa.float64()), "y": pa.array([], pa.int8())}), path)
    assert "no rows" in refusal(path)


def test_not_a_number_is_the_third_state() -> None:
    # The tests above tell numbers from the rest by None; this is what None stands for.
    assert parse_number(np.frombuffer(b"abc", np.uint8), 0, 3)[1] == NOT_A_NUMBER


def test_the_index_of_a_data_frame_is_no_feature(tmp_path: Path) -> None:
    table = pd.DataFrame({"a": [1.0, 2, 3], "b": [4.0, 5, 6], "kind": ["u", "v", "u"]})
    expected = read_frame(table, tmp_path)
    for index in (table.index[::-1], pd.Index(["x", "y", "z"], name="who"), table["a"] * 7):
        x, y, names = read_frame(table.set_index(index), tmp_path)
        assert x.tolist() == expected[0].tolist() and y.tolist() == ["u", "v", "u"]
        assert names == ["a", "b"]
    metadata = {b"pandas": b'{"index_columns": 3}'}
    plain = pa.Table.from_pandas(table).replace_schema_metadata(metadata)
    pq.write_table(plain, tmp_path / "odd.parquet")
    assert read(tmp_path / "odd.parquet")[0].shape == (3, 2)


def read_frame(table: pd.DataFrame, folder: Path) -> tuple:
    table.to_parquet(folder / "frame.parquet")
    names = open_reader(folder / "frame.parquet").feature_names
    return *read(folder / "frame.parquet"), names


def test_a_mistyped_label_column_is_told_with_the_names_there_are(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("a,b,class\n1,2,x\n3,4,y\n")
    with pytest.raises(UserError, match=r"no column 'clas'.*class"):
        open_reader(path, ReadOptions(label_column="clas"))
    path.write_text("1,2,x\n3,4,y\n")
    with pytest.raises(UserError, match="no header line"):
        open_reader(path, ReadOptions(label_column="clas"))
