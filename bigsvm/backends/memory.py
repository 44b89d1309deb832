"""The memory plan: how `solver.memory_limit` is divided. The O(n) state comes on top of it."""

import ctypes
import resource
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from bigsvm.backends import COLUMN_BATCH, PRODUCT_ROWS
from bigsvm.core.errors import UserError
from bigsvm.stores.rows import CHUNK_BYTES
from bigsvm.stores.store import Dataset

# The size of the interpreter and its libraries varies by some 20 MiB between starts.
_MARGIN = 1.1
# Allocated later: libraries that save and score models, compiled code, thread stacks.
_LATER = 26 * 2**20


@dataclass(frozen=True)
class MemoryPlan:
    """How memory is divided.

    Attributes
    ----------
    resident : int
        Bytes for rows kept in memory.
    solver : int
        Bytes for the solver's kernel values.
    rows_at_once : int
        The most rows to gather at a time.
    """

    resident: int
    solver: int
    rows_at_once: int


def resident_set() -> int:
    """The resident set size of the process, in bytes."""
    return int(psutil.Process().memory_info().rss)


def _settled_resident_set() -> int:
    """`resident_set` after malloc has returned freed memory, which may be 35 MiB."""
    with suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    return resident_set()


def peak_resident_set() -> int:
    """The largest resident set size so far, in bytes.

    From /proc where possible: on Linux `ru_maxrss` is inherited from the parent process.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _chunk_bytes(dataset: Dataset) -> int:
    return max(dataset.stored_chunk_bytes, 4 * dataset.chunk_rows * dataset.d)


def check_chunk_size(limit: int, dataset: Dataset) -> None:
    """Raise a UserError if the chunks of a data set are too large to be read within `limit`.

    All rows are read and checked once before a training is planned; each reader then holds one
    chunk as it is stored, and decoded. For chunks of an ordinary size `plan_memory` is stricter.
    """
    needed = resident_set() + 2 * dataset.n_readers * _chunk_bytes(dataset)
    if needed > limit and _chunk_bytes(dataset) > 4 * CHUNK_BYTES:
        raise UserError(
            f"solver.memory_limit = {limit / 2**20:.0f} MiB is too small for {dataset.path}: its "
            f"chunks of {dataset.stored_chunk_bytes / 2**20:.0f} MiB are decoded whole, and to "
            f"read them takes {needed / 2**20:.0f} MiB; raise it, or store smaller chunks"
        )


def plan_memory(
    limit: int,
    dataset: Dataset,
    hot_rows: int = 0,
    weights: int = 0,
    *,
    n_outputs: int = 1,
    held: int | None = None,
    name: str = "solver.memory_limit",
) -> MemoryPlan:
    """Divide what the interpreter and its libraries (or `held` bytes) leave of `limit`.

    Reserved first are the chunks in flight: the one being computed; for each reader the block it
    fills, its rows, and the stored bytes both raw and decoded; and the rows a model takes from a
    chunk. Then come the result of a pass, `n_outputs` numbers per pattern, and the rows gathered
    for it. Up to half of the rest holds data, because reading it again costs more than recomputing
    columns. The remainder is for the solver: at least two kernel columns, or a hot set of
    `hot_rows` rows. `weights` is the size of the pattern weights, in bytes per pattern.
    """
    chunk = _chunk_bytes(dataset)
    in_flight = (2 + 4 * dataset.n_readers) * chunk
    whole = 4 * (dataset.n + dataset.chunk_rows) * dataset.d
    # A row of the hot set is held twice, as gathered and in a panel; its columns are short.
    hot = min(hot_rows, dataset.n)
    least = 4 * hot * (2 * dataset.d + 2) if hot else 2 * 4 * dataset.n
    # The result of a pass, before it is added to the gradient. Other arrays that briefly have n
    # entries, at most 17 bytes per pattern (the last iterate of a hot set, and the sums of a
    # recomputed gradient), count as state: ten million patterns are to fit into 512 MiB.
    product = (8 * n_outputs + weights) * dataset.n
    coefficients = 8 * n_outputs * min(PRODUCT_ROWS, dataset.n)
    held = _settled_resident_set() + _LATER if held is None else held
    available = limit - held - in_flight - product - coefficients
    # A gathered row is held twice while it is sent to a worker or laid out in a panel. Gathering
    # fewer than a chunk at a time would take more passes than there are chunks.
    row = 2 * 4 * dataset.d
    fewest = max(COLUMN_BATCH, dataset.chunk_rows)
    at_once = min(PRODUCT_ROWS, dataset.n, max(fewest, (available - least) // 8 // row))
    available -= at_once * row
    if available < least:
        needed = limit - available + least
        raise UserError(
            f"{name} = {limit / 2**20:.0f} MiB is too small for {dataset.path}: at least "
            f"{needed / 2**20 * _MARGIN:.0f}MiB are needed ("
            + (f"{held / 2**20:.0f} MiB for the interpreter and its libraries, " if held else "")
            + f"{-(-in_flight // 2**20)} MiB rows in flight, {-(-least // 2**20)} MiB "
            + ("a hot set)" if hot else "two kernel columns)")
        )
    resident = min(whole, available // 2, available - least)
    if resident == whole:  # then chunks are in flight only before training and for a model
        available += (1 + 2 * dataset.n_readers) * chunk
    return MemoryPlan(resident, available - resident, at_once)
