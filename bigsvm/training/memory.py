"""Dividing `solver.memory_limit`, the bound of the process apart from the state (O(n))."""

import ctypes
import resource
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from bigsvm.core.errors import UserError
from bigsvm.solvers.column_cache import BATCH
from bigsvm.solvers.problem import ROWS
from bigsvm.stores.rows import CHUNK_BYTES
from bigsvm.stores.store import Dataset

# The interpreter and its libraries take some 20 MiB more or less from one start to the next.
_MARGIN = 1.1
# What comes later: the libraries that save and score models, compiled code, the stacks of threads.
_LATER = 12 * 2**20


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes for data kept in memory, and for the solver's own kernel values; rows to gather."""

    resident: int
    solver: int
    rows_at_once: int


def resident_set() -> int:
    """What the process occupies now."""
    return int(psutil.Process().memory_info().rss)


def _settled_resident_set() -> int:
    """`resident_set` without what was given back: 35 MiB or none, as it happened to lie."""
    with suppress(OSError, AttributeError):  # another C library keeps less, or has no say in it
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    return resident_set()


def peak_resident_set() -> int:
    """The most that the process has occupied so far.

    Not `ru_maxrss` where there is better: Linux hands that down from the process that started this
    one.
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
    """Refuse chunks that take more than the limit when they are read for the first time.

    Before there is anything to plan the memory of a training for, all rows are read once, to be
    checked. Each reader then holds a chunk as it is stored, and decoded. Of chunks of an ordinary
    size `plan_memory` says more.
    """
    needed = resident_set() + 2 * dataset.readers * _chunk_bytes(dataset)
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
    sums: int = 1,
    held: int | None = None,
    name: str = "solver.memory_limit",
) -> MemoryPlan:
    """Divide what the interpreter and its libraries (or `held` bytes) leave of `limit`.

    Chunks on their way from the disk come first: one being computed, and for each reader the block
    it fills, the rows of it, and the stored bytes they come from, as they are and decoded; and the
    rows that a model takes from one. Beside them what a pass gives, `sums` numbers a pattern, and
    the rows that are gathered for it. Then the data, up to half of the rest: reading it again costs
    more than computing columns again. What is left is for the solver: kernel columns, two at the
    least, or a hot set of so many rows. `weights` is what they take, in bytes a pattern.
    """
    chunk = _chunk_bytes(dataset)
    on_the_way = (2 + 4 * dataset.readers) * chunk
    whole = 4 * (dataset.n + dataset.chunk_rows) * dataset.d
    # A row of a hot set is there as gathered and in a panel; its columns are short.
    hot = min(hot_rows, dataset.n)
    least = 4 * hot * (2 * dataset.d + 2) if hot else 2 * 4 * dataset.n
    # What a pass gives, ahead of being added to the gradient. What else is as long as the data for
    # moments, at most 17 bytes a pattern (the last iterate of a hot set, and the sums of a gradient
    # that is recomputed), counts as state: ten million patterns are to fit into a laptop's 512 MiB.
    product = (8 * sums + weights) * dataset.n
    coefficients = 8 * sums * min(ROWS, dataset.n)
    held = _settled_resident_set() + _LATER if held is None else held
    available = limit - held - on_the_way - product - coefficients
    # A gathered row is there twice where it is sent to a worker or laid out in a panel. Of fewer
    # than a chunk of them at once, a sum would take more passes than there are chunks.
    row = 2 * 4 * dataset.d
    fewest = max(BATCH, dataset.chunk_rows)
    at_once = min(ROWS, dataset.n, max(fewest, (available - least) // 8 // row))
    available -= at_once * row
    if available < least:
        needed = limit - available + least
        raise UserError(
            f"{name} = {limit / 2**20:.0f} MiB is too small for {dataset.path}: at least "
            f"{needed / 2**20 * _MARGIN:.0f}MiB are needed ("
            + (f"{held / 2**20:.0f} MiB hold the interpreter and its libraries, " if held else "")
            + f"{-(-on_the_way // 2**20)} MiB rows on their way, {-(-least // 2**20)} MiB "
            + ("a hot set)" if hot else "two kernel columns)")
        )
    resident = min(whole, available // 2, available - least)
    if resident == whole:  # then chunks are on their way only ahead of the solver, and to a model
        available += (1 + 2 * dataset.readers) * chunk
    return MemoryPlan(resident, available - resident, at_once)
