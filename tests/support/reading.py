"""Reading a file whole, or being refused, for the tests of readers."""

from pathlib import Path

import numpy as np
import pytest

import bigsvm.readers as readers
from bigsvm.core.errors import UserError
from bigsvm.readers import ReadOptions, open_reader


def read(path: Path, **options: object) -> tuple[np.ndarray, np.ndarray]:
    """All rows and labels of a file, with every batch checked."""
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
