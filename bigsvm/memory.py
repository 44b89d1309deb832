"""Dividing `solver.memory_limit`, the bound of the process apart from the state (O(n))."""

import resource
from dataclasses import dataclass
from pathlib import Path

import psutil

from bigsvm.errors import UserError
from bigsvm.store import Dataset


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes for data kept in memory, and for the solver's own kernel values."""

    resident: int
    solver: int


def resident_set() -> int:
    """What the process occupies now."""
    return int(psutil.Process().memory_info().rss)


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
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


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
    it fills, the rows of it, and the stored bytes they come from, as they are and decoded. Beside
    them the product of a pass, `sums` numbers a pattern. Then the data, up to half of the rest:
    reading it again costs more than computing columns again. What is left is for the solver: kernel
    columns, two at the least, or a hot set of so many rows. `weights` is what they take, in bytes a
    pattern.
    """
    chunk = max(dataset.stored_chunk_bytes, 4 * dataset.chunk_rows * dataset.d)
    on_the_way = (1 + 4 * dataset.readers) * chunk
    whole = 4 * (dataset.n + dataset.chunk_rows) * dataset.d
    # A row of a hot set is there as gathered, as moved and in a panel; its columns are short.
    hot = min(hot_rows, dataset.n)
    least = 4 * hot * (3 * dataset.d + 2) if hot else 2 * 4 * dataset.n
    # What a pass gives, ahead of being added to the gradient.
    product = (8 * sums + weights) * dataset.n
    held = resident_set() if held is None else held
    available = limit - held - on_the_way - product
    if available < least:
        needed = limit - available + least
        raise UserError(
            f"{name} = {limit / 2**20:.0f} MiB is too small for {dataset.path}: at least "
            f"{needed / 2**20 * 1.05:.0f}MiB are needed ("
            + (f"{held / 2**20:.0f} MiB hold the interpreter and its libraries, " if held else "")
            + f"{-(-on_the_way // 2**20)} MiB rows on their way, {-(-least // 2**20)} MiB "
            + ("a hot set)" if hot else "two kernel columns)")
        )
    resident = min(whole, available // 2, available - least)
    return MemoryPlan(resident, available - resident)
