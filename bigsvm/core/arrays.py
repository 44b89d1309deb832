"""Array types that several layers share."""

from collections.abc import Iterator
from typing import Protocol

import numpy as np


class RowChunks(Protocol):
    """A 2-d array that is produced chunk by chunk, because it may not fit in memory."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype: ...

    def __iter__(self) -> Iterator[np.ndarray]:
        """Yield its rows in order, several at a time."""
