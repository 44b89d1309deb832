"""Cells: a subproblem too large for one hot set, divided into parts that are solved in turn.

Solving one part after the other is block coordinate descent, which takes long where patterns of
different parts depend on each other. Two kinds of division, taken in turn and never the same one
twice, leave no such dependence standing for long:

- neighbours together: what a narrow kernel couples is solved as one, but for patterns at the
  borders, which lie elsewhere the next time;
- drawn at random: every cell is a sample of the whole, and so moves what a wide kernel couples.
"""

from collections.abc import Iterator

import numpy as np

from bigsvm.backends import Backend
from bigsvm.backends.products import GatheredRows
from bigsvm.solvers.order import HashOrder


def cells(backend: Backend, most: int, sweep: int) -> list[np.ndarray]:
    """The patterns of a backend, in cells of at most `most`; another division for each `sweep`.

    Ascending within each cell. No rounding depends on the machine: sums are taken feature by
    feature, in their order.
    """
    every = np.arange(backend.n)
    order = HashOrder(backend.n, seed=sweep)
    if sweep % 2:
        count = len(list(_halves(every, most, lambda cell: cell)))
        parts = np.array_split(every[np.argsort(order[every])], count)
    else:
        parts = list(_halves(every, most, lambda cell: _along_a_line(backend, cell, order)))
    return [np.sort(part) for part in parts]


def _halves(cell, most, arrange) -> Iterator[np.ndarray]:  # type: ignore[no-untyped-def]
    """Halve a cell, as `arrange` orders it, until each part has at most `most` patterns."""
    if len(cell) <= most:
        yield cell
        return
    for half in np.array_split(arrange(cell), 2):
        yield from _halves(half, most, arrange)


def _along_a_line(backend: Backend, cell: np.ndarray, order: HashOrder) -> np.ndarray:
    """The patterns of a cell in their order along the line through two of them."""
    cell = np.sort(cell)
    ends = backend.gather(np.sort(cell[np.argsort(order[cell])[:2]])).astype(np.float64)
    line, start, along = ends[1] - ends[0], 0, np.zeros(len(cell))
    for rows in GatheredRows(backend, cell, backend.rows_at_once):
        here = along[start : start + len(rows)]
        for feature in np.flatnonzero(line):
            here += rows[:, feature] * line[feature]
        start += len(rows)
    return cell[np.argsort(along, kind="stable")]
