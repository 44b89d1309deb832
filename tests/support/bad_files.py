"""Files and folders with something wrong in them, for the table of bad input."""

import bz2
import gzip
import io
import lzma
import pickle
import shutil
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bigsvm.files.checked_tensors import read_tensors, write_tensors

Content = str | bytes | Callable[[Path], object]

CSV = "a,b,class\n" + "".join(f"{k},{k % 5},{'yes' if k % 3 else 'no'}\n" for k in range(40))
ROWS = np.random.default_rng(0).normal(size=(12, 3))
SIGNS = np.where(np.arange(12) % 2, 1, -1)


def put(path: Path, content: Content) -> None:
    """Make the file or folder `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if callable(content):
        content(path)
    elif isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content)


def config(text: str = "", train: str = "good.zarr", **sections: str) -> str:
    """A config that is right but for what is given."""
    parts = {
        "data": f"{{train: {train}}}",
        "model": "{C: 1, kernel: {name: rbf, sigma: 1}}",
        "solver": "{max_iterations: 20, threads: 1}",
    } | sections
    return "".join(f"{key}: {value}\n" for key, value in parts.items()) + text


def arrays(**given: Any) -> Callable[[Path], None]:
    """An HDF5 file of the user's own, X and y unless given."""

    def make(path: Path) -> None:
        with h5py.File(path, "w") as file:
            for name, array in ({"X": ROWS, "y": SIGNS} | given).items():
                if array is not None:
                    file[name] = array

    return make


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def npz(**members: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez(file, **members)
    return file.getvalue()


def parquet(**columns: Any) -> Callable[[Path], None]:
    return lambda path: pq.write_table(pa.table(columns), path)


def zipped(members: dict[str, str]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return file.getvalue()


def encrypted(members: dict[str, str]) -> bytes:
    """A zip whose members say that they need a password."""
    content = bytearray(zipped(members))
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    return bytes(content)


def xz_of_huge_dictionary(text: str) -> bytes:
    """An xz file that asks its reader for a dictionary of 4 GiB."""
    content = bytearray(lzma.compress(text.encode()))
    # After the stream header (12 bytes): size, flags, filter 0x21, one property byte, padding, CRC.
    begin = 12
    size = 4 * (content[begin] + 1)
    content[begin + 4] = 40
    checksum = zlib.crc32(bytes(content[begin : begin + size - 4]))
    content[begin + size - 4 : begin + size] = checksum.to_bytes(4, "little")
    return bytes(content)


COMPRESS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}


def cut(kind: str) -> bytes:
    """Compressed text of which the end is missing."""
    noise = np.random.default_rng(0).integers(0, 10**6, size=5000)
    whole = COMPRESS[kind]("".join(f"{n},{n % 7},{n % 2}\n" for n in noise).encode())
    return whole[: len(whole) // 2]


def copied(origin: str, change: Callable[[Path], object]) -> Callable[[Path], None]:
    """A copy of another file or folder there, changed."""

    def make(path: Path) -> None:
        source = path.parent / origin
        (shutil.copytree if source.is_dir() else shutil.copy)(source, path)
        change(path)

    return make


def shortened(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def one_bit_flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 4
    path.write_bytes(content)


def about(**changes: Any) -> Callable[[Path], None]:
    """Rewrite what a sealed file says of itself; the seal is right."""

    def change(path: Path) -> None:
        content, described = read_tensors(path)
        write_tensors(path, content, described | changes)

    return change


def coefficient(value: float) -> Callable[[Path], None]:
    """Rewrite the first coefficient of a model; the seal is right."""

    def change(path: Path) -> None:
        content, described = read_tensors(path)
        content["dual_coef"][0] = value
        write_tensors(path, content, described)

    return change


def safetensors_header_of(size: int) -> bytes:
    return size.to_bytes(8, "little") + b'{"a": 1}'


class Code:
    """What a stranger's pickle may do."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path("pwned").touch, ())


PICKLE = pickle.dumps(Code())
OBJECTS = npy(np.array([[Code(), 1]], dtype=object))
