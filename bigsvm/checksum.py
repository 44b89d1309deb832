"""A checksum fast enough to be taken of every chunk on every pass."""

import numpy as np
from numba import njit


def checksum(rows: np.ndarray) -> int:
    """64 bits of C-contiguous float32 rows; a change in any one bit, or of order, changes them."""
    return int(_checksum(rows.reshape(-1).view(np.uint32)))


@njit(cache=True, nogil=True)
def _checksum(words):  # type: ignore[no-untyped-def]
    # Fletcher's, in four lanes that the processor adds at once; sums of sums depend on the order.
    sums, sums_of_sums = np.zeros(4, np.uint64), np.zeros(4, np.uint64)
    whole = len(words) // 4 * 4
    for i in range(0, whole, 4):
        for lane in range(4):
            sums[lane] += np.uint64(words[i + lane])
            sums_of_sums[lane] += sums[lane]
    result = np.uint64(0)
    for i in range(whole, len(words)):
        result = result * np.uint64(31) + np.uint64(words[i])
    for lane in range(4):
        result = result * np.uint64(1000003) + sums[lane]
        result = result * np.uint64(1000003) + sums_of_sums[lane]
    return result
