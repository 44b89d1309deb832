"""LIBSVM and CSV, right and wrong, line by line."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bigsvm.readers as readers
from bigsvm.core.errors import UserError
from bigsvm.readers import ReadOptions, decompress, open_reader
from tests.support.reading import read, refusal, write

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


def test_a_mistyped_label_column_is_told_with_the_names_there_are(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("a,b,class\n1,2,x\n3,4,y\n")
    with pytest.raises(UserError, match=r"no column 'clas'.*class"):
        open_reader(path, ReadOptions(label_column="clas"))
    path.write_text("1,2,x\n3,4,y\n")
    with pytest.raises(UserError, match="no header line"):
        open_reader(path, ReadOptions(label_column="clas"))
