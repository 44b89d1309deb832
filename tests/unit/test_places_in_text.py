"""A message names the line that the user finds in an editor, whatever lines are above it."""

from pathlib import Path

import pytest

from bigsvm.config import PrepareOptions
from bigsvm.core.errors import UserError
from bigsvm.preparation.pipeline import prepare
from bigsvm.readers import ReadOptions, open_reader
from bigsvm.training.weights import _from_file

# Empty lines, lines of blanks, and in LIBSVM text comments; the row to come is in line 8.
HEADER = "\n\na,w,b,kind\n\n1,1,2,u\n  \n\n"
TABLE = "\n\n1,1,2,u\n\n1,1,2,u\n  \n\n"
LIBSVM = "# about\n\n+1 1:1 2:1 3:1\n# more\n-1 2:1 # one\n \n\n"
MINIBOONE = "\n 1 2\n\n1 1 2\n\n1 1 2\n\n"
BAD_TABLE_ROWS = {
    "1,-1,2,u": "column 2.*-1 is no weight",
    "1,1e300,2,u": r"column 2.*1e\+300 is no weight",
    "1,1,two,u": "column 3.*'two' is not a number",
    "1,1,nan,u": "column 3.*not finite",
    "1,1,1e999,u": "column 3.*too large",
    "1,1,1e99,u": "feature 2: 1e\\+99 does not fit",
    "1,1,,u": "column 3.*missing",
    "1,1,2,": "the label is missing",
    "1,1,2,7": "the label is numeric where those before it are text",
    "1,1,2": "3 fields where 4",
    '1,1,2,"u': "not closed",
}


def refused(path: Path, text: str, line_end: str, said: str, **options: object) -> None:
    path.write_bytes(text.replace("\n", line_end).encode())
    with pytest.raises(UserError, match=f"^{path}, line 8[,:].*{said}"):
        prepare(path, path.parent / "s.zarr", PrepareOptions(**options))


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("above", [HEADER, TABLE], ids=["header", "none"])
@pytest.mark.parametrize("row", BAD_TABLE_ROWS)
def test_of_a_table(row: str, above: str, line_end: str, tmp_path: Path) -> None:
    options = {"weight_column": 1, "scaling": "none"}
    text = f"{above}{row}\n1,1,2,u\n"
    refused(tmp_path / "t.csv", text, line_end, BAD_TABLE_ROWS[row], **options)
    tabs = text.replace(",", "\t")
    refused(tmp_path / "t.tsv", tabs, line_end, BAD_TABLE_ROWS[row], **options)


def test_of_a_table_with_the_label_first(tmp_path: Path) -> None:
    """Columns are counted as in the file, the label among them."""
    for field, said in {"two": "not a number", "1e999": "too large"}.items():
        text = f"{TABLE.replace('1,1,2,u', 'u,1,2')}u,1,{field}\n"
        refused(tmp_path / "t.csv", text, "\n", f"column 3: .*{said}", label_column=0)


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("+1 1:1 2:two", "feature 2: 'two' is not a number"),
        ("+1 1:1 3:1e999", "feature 3: the number is too large"),
        ("+1 1:1 3:1e99", "feature 3: 1e\\+99 does not fit"),
        ("yes 1:1", "the label is text where those before it are numeric"),
        ("nan 1:1", "the label is missing"),
        ("1:1 2:1", "not with a label"),
        ("+1 2:1 1:1", "does not come after"),
        ("+1 7000000:1", "the limit is"),
    ],
)
def test_of_libsvm_text(row: str, said: str, line_end: str, tmp_path: Path) -> None:
    text = f"{LIBSVM}{row}\n-1 1:1\n"
    refused(tmp_path / "t.libsvm", text, line_end, said, scaling="none")


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("1 two 2", "column 2: 'two'"),
        ("1 2 1e999", "column 3: the number is too large"),
        ("1 2 1e99", "feature 3: 1e\\+99 does not fit"),
        ("1 2", "2 fields where 3"),
    ],
)
def test_of_miniboone_text(row: str, said: str, line_end: str, tmp_path: Path) -> None:
    options = {"format": "miniboone", "scaling": "none"}
    refused(tmp_path / "t.txt", f"{MINIBOONE}{row}\n", line_end, said, **options)


def test_of_weights_in_a_text(tmp_path: Path) -> None:
    path = tmp_path / "w.txt"
    path.write_text("\n\n1\n\n1\n\n\n-2\n1\n")
    with pytest.raises(UserError, match=r"^model\.weights, line 8: the weight is -2; a weight is"):
        _from_file(path, "model.weights")


def test_of_later_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of text and batches of rows end where they like."""
    monkeypatch.setattr("bigsvm.readers.decompress.BLOCK_BYTES", 64)
    monkeypatch.setattr("bigsvm.readers.BATCH_BYTES", 5 * 8 * 2)
    path = tmp_path / "t.csv"
    path.write_text("a,w,kind\n" + "\n1,2,u\n\n" * 40 + "1,-2,u\n")
    with pytest.raises(UserError, match=r"t\.csv, line 122, column 2 .*-2 is no weight"):
        list(open_reader(path, ReadOptions(weight_column="w")).batches())
    path.write_text("a,w,kind\n" + "\n1,2,u\n\n" * 40)
    lines = [n for b in open_reader(path).batches() for n in b.lines.tolist()]
    assert lines == list(range(3, 122, 3))


def test_a_quoted_field_ends_on_its_line(tmp_path: Path) -> None:
    """A row is a line: one with a line break in it is refused where it begins."""
    path = tmp_path / "t.csv"
    for text, line in (('\na,"b\nc",kind\n1,2,u\n', 2), ('a,b,kind\n1,2,u\n\n1,2,"u\nv"\n', 4)):
        path.write_text(text)
        with pytest.raises(UserError, match=f"t.csv, line {line}: .*not closed on its line"):
            list(open_reader(path).batches())
