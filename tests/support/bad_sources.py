"""Bad input: raw files, and the options of `prepare`."""

import numpy as np

from tests.support import bad_files as bad
from tests.support.bad_case import NAN, Case


def read(words: str, name: str, content: bad.Content, options: str = "") -> Case:
    said = (name, *words.split("|")) if words else ()
    return Case(f"prepare '{name}' new.zarr {options}", {name: content}, said)


CASES: dict[str, Case] = {
    # Raw files
    "read: not there": Case("prepare no.csv new.zarr", {}, ("no.csv", "no such file", "miniboone")),
    "read: a folder": Case(
        "prepare good.zarr new.zarr", {}, ("good.zarr", "no parts of a table in this folder")
    ),
    "read: empty": read("empty", "e.csv", ""),
    "read: only empty lines": read("no rows", "e.csv", "\n\n \n"),
    "read: only a header": read("no rows", "e.csv", "a,b,class\n"),
    "read: NaN": read("line 3, column 2|'nan'|replace", "n.csv", "1,2,0\n1,2,1\n1,nan,0\n"),
    "read: infinite": read("line 1, column 1|'-inf'", "n.csv", "-inf,2,0\n1,2,1\n"),
    "read: beyond float64": read("line 2, column 1|too large", "n.csv", "1,2,0\n1e999,2,1\n"),
    "read: beyond float32": read(
        "line 2, feature 1|--scaling", "n.csv", "1,2,0\n1e99,2,1\n", "--scaling none"
    ),
    "read: a word": read("line 2, column 2|'two'|not a number", "n.csv", "1,2,0\n1,two,1\n"),
    "read: the labels elsewhere": read(
        "line 2, column 3 ('class')|'no' is not a number|--categorical",
        "n.csv",
        bad.CSV,
        "--label-column a",
    ),
    "read: a hole": read("line 2, column 2|missing", "n.csv", "1,2,0\n1,,1\n"),
    "read: ragged, short": read("line 3|2 fields|3 are", "n.csv", "1,2,0\n1,2,1\n1,0\n"),
    "read: ragged, long": read("line 2|more than the 3", "n.csv", "1,2,0\n1,2,1,7\n"),
    "read: an open quote": read("line 2|quoted", "n.csv", '1,2,"0"\n1,2,"1\n'),
    "read: header where none is": read(
        "line 1|'a' is not a number", "n.csv", bad.CSV, "--header no"
    ),
    "read: no label": read("line 2|label is missing", "n.csv", "1,2,0\n1,2,\n"),
    "read: labels of two kinds": read("line 3|label is text", "n.csv", "1,2,0\n1,2,1\n1,2,x\n"),
    "read: one class": read("one class only|1", "n.csv", "1,2,1\n1,3,1\n"),
    "read: three classes": read("", "n.csv", "1,2,a\n1,3,b\n1,4,c\n1,2,a\n1,3,b\n1,4,c\n"),
    "read: a label for each row": read(
        "3 different labels|right column|positive", "n.csv", "1,2,a\n1,3,b\n1,4,c\n"
    ),
    "read: 1,001 classes": read(
        "1001 different labels|right column",
        "n.csv",
        "".join(f"1,2,{i // 3}\n" for i in range(3003)),
    ),
    "read: three classes, one against the rest": read(
        "", "n.csv", "1,2,a\n1,3,b\n1,4,c\n", "--positive b"
    ),
    "read: no such positive": read("no row|'z'", "n.csv", "1,2,a\n1,3,b\n", "--positive z"),
    "read: no such label column": read("'klass'|'class'", "n.csv", bad.CSV, "--label-column klass"),
    "read: a superscript for the label column": read(
        "'²'|'class'", "n.csv", bad.CSV, "--label-column ²"
    ),
    "read: a position of many digits": read(
        "no column|'class'", "n.csv", bad.CSV, f"--label-column {'9' * 5000}"
    ),
    "read: a label column whose name is a number": read(
        "", "n.csv", "2019,2020,y\n0,2,3\n1,4,5\n", "--label-column 2019"
    ),
    "read: a weight below 0": read(
        "line 3|column 2 ('w')|-1 is no weight",
        "n.csv",
        "a,w,class\n1,0,0\n2,-1,1\n3,1,1\n",
        "--weight-column w",
    ),
    "read: a weight that is no number": read(
        "line 2|column 1|'nan' is not finite", "n.csv", "1,2,0\nnan,3,1\n", "--weight-column 0"
    ),
    "read: no such weight column": read("'w'|'class'", "n.csv", bad.CSV, "--weight-column w"),
    "read: labels as weights": read(
        "'class'|labels|--label-column", "n.csv", bad.CSV, "--weight-column class"
    ),
    "read: only labels": read("no features", "n.csv", "1\n0\n1\n", "--format csv"),
    "read: one row": read("one class only", "n.csv", "1,2,1\n"),
    "read: two rows": read("", "n.csv", "1,2,1\n3,4,0\n"),
    "read: a constant feature": read("", "n.csv", "1,2,1\n1,4,0\n", "--scaling standard"),
    "read: all rows equal": read("", "n.csv", "1,2,1\n1,2,0\n", "--scaling minmax"),
    "read: Windows line ends": read("", "n.csv", bad.CSV.replace("\n", "\r\n").encode()),
    "read: UTF-16": read("UTF-16|UTF-8", "n.csv", bad.CSV.encode("utf-16")),
    "read: spaces and letters": read("", "größe 日本.csv", bad.CSV),
    "read: a binary file": read("not a text file", "n.csv", bytes(range(256))),
    "read: cut gz": read("ends too early|fetch it again", "n.csv.gz", bad.cut("gz")),
    "read: cut bz2": read("ends too early|fetch it again", "n.csv.bz2", bad.cut("bz2")),
    "read: cut xz": read("ends too early|fetch it again", "n.csv.xz", bad.cut("xz")),
    "read: xz of 4 GiB": read("dictionary|xz", "n.csv.xz", bad.xz_of_huge_dictionary(bad.CSV)),
    "read: zip that climbs out": read("", "n.zip", bad.zipped({"../../evil.csv": bad.CSV})),
    "read: zip of two": read(
        "one data file|'a.csv', 'b.csv'", "n.zip", bad.zipped({"a.csv": "", "b.csv": ""})
    ),
    "read: zip with a password": read("password", "n.zip", bad.encrypted({"a.csv": bad.CSV})),
    "read: LIBSVM index 0": read("line 2|indices count from 1", "n.svm", "1 1:2\n0 0:3\n"),
    "read: LIBSVM out of order": read("line 1|come after", "n.svm", "1 2:2 1:1\n0 1:3\n"),
    "read: LIBSVM index too far": read("line 2|the limit", "n.svm", "1 1:2\n0 99999999:3\n"),
    "read: LIBSVM no pair": read("line 2|index:value", "n.svm", "1 1:2\n0 3\n"),
    "read: MiniBooNE cut": read(
        "announces 2 + 2|3", "n.txt", "2 2\n" + "1 2 3\n" * 3, "--format miniboone"
    ),
    "read: MiniBooNE without counts": read("two counts", "n.txt", "1 2 3\n", "--format miniboone"),
    "read: npy of objects": read("Python objects", "n.npy", bad.OBJECTS),
    "read: npy cut": read("ends before", "n.npy", bad.npy(bad.ROWS)[:-8]),
    "read: npy of one dimension": read("two-dimensional", "n.npy", bad.npy(np.ones(5))),
    "read: npy with NaN": read(
        "row 2, feature 1|nan", "n.npy", bad.npy(np.array([[1, 1], [NAN, 0]]))
    ),
    "read: npz without labels": read("no array 'y'|'X'", "n.npz", bad.npz(X=bad.ROWS)),
    "read: npz labels too few": read("(3,)|12 rows", "n.npz", bad.npz(X=bad.ROWS, y=np.ones(3))),
    "read: Parquet cut": read("Parquet", "n.parquet", b"PAR1" + bytes(50)),
    "read: Parquet with a null": read(
        "row 2|'a'|missing", "n.parquet", bad.parquet(a=[1.0, None], y=[0, 1])
    ),
    "read: Parquet with text": read(
        "'a'|not numbers", "n.parquet", bad.parquet(a=["u", "v"], y=[0, 1])
    ),
    "read: Parquet of other format": read("n.csv", "n.csv", b"PAR1" + bytes(60), "--format csv"),
    # Options of prepare
    "prepare: unknown option": Case("prepare good.csv new.zarr --scalling x", {}, ("--scalling",)),
    "prepare: rows in words": Case(
        "prepare synthetic new.zarr --rows many", {}, ("--rows", "many")
    ),
    "prepare: rows of a file": Case(
        "prepare good.csv new.zarr --rows 5", {}, ("rows", "synthetic")
    ),
    "prepare: no rows": Case("prepare synthetic new.zarr --rows 0", {}, ("rows", "0")),
    "prepare: fraction above 1": Case(
        "prepare good.csv new.zarr --test-fraction 1.5", {}, ("test_fraction", "1.5", "less than 1")
    ),
    "prepare: all for the test": Case(
        "prepare good.csv new.zarr --test-rows 40", {}, ("40 test rows", "take fewer")
    ),
    "prepare: clip 0": Case("prepare good.csv new.zarr --clip 0", {}, ("clip", "greater than 0")),
    "prepare: store of no format": Case("prepare good.csv new.store", {}, ("new.store", ".zarr")),
    "prepare: store exists": Case("prepare good.csv good.zarr", {}, ("good.zarr", "--overwrite")),
    "prepare: overwrites no strangers": Case(
        "prepare good.csv my.zarr --overwrite",
        {"my.zarr/thesis.tex": "x"},
        ("my.zarr", "not a store"),
    ),
    "prepare: no folder": Case("prepare good.csv no/new.zarr", {}, ("no/new.zarr", "create it")),
    "prepare: delimiter of two": Case(
        "prepare good.csv new.zarr --delimiter ab", {}, ("delimiter", "'ab'")
    ),
    "prepare: test file of other features": Case(
        "prepare good.csv new.zarr --test-file t.csv",
        {"t.csv": "a,class\n1,yes\n"},
        ("t.csv", "1 features", "has 2"),
    ),
    "prepare: test file of other columns": Case(
        "prepare good.csv new.zarr --test-file t.csv",
        {"t.csv": "a,c,class\n1,2,yes\n"},
        ("t.csv", "feature 2 is 'c'", "good.csv has 'b'"),
    ),
    "prepare: all dropped": Case(
        "prepare n.csv new.zarr --drop-value 1", {"n.csv": "1,1,0\n1,1,1\n"}, ("n.csv", "dropped")
    ),
}
