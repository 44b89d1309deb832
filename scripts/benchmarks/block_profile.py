"""Where the time of one training goes.

    python -m scripts.benchmarks.block_profile configs/miniboone.yaml

Trains in this process, from the start, in a folder that is removed afterwards; prints the seconds
of each part of the block schedule, and how many kernel values it computed. Parts are timed from
outside, one within the other, so that each second counts once. Run it twice: the first time numba
may compile.
"""

import argparse
import functools
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from bigsvm import cli, kernels, train
from bigsvm.backends import local, products
from bigsvm.solvers import block, column_cache, hot_columns, hot_steps
from bigsvm.training.checkpoint import Checkpoints
from bigsvm.training.loop import Training

PARTS: list[tuple[Any, str, str]] = [
    (local.LocalBackend, "__init__", "reading the data"),
    (block.BlockSolver, "select_block", "selecting subproblems"),
    (block.BlockSolver, "_serve", "gathering rows"),
    (hot_columns.HotColumns, "follow", "keeping columns"),
    (column_cache.ColumnCache, "fetch", "hot columns"),
    (column_cache, "_choose", "guessing columns"),
    (hot_steps, "conjugate_steps", "steps"),
    (local.LocalBackend, "matvec", "passes"),
    (block.BlockSolver, "stop_test", "stop tests"),
    (Checkpoints, "save", "checkpoints"),
    (Training, "save_model", "models"),
]


class Clock:
    """Seconds by part; a part within another stops its clock."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self._open = ["everything else"]
        self._since = time.perf_counter()

    def switch(self) -> None:
        now = time.perf_counter()
        self.seconds[self._open[-1]] += now - self._since
        self._since = now

    def timed(self, function: Callable[..., Any], part: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*arguments: Any, **named: Any) -> Any:
            self.switch()
            self._open.append(part)
            self.calls[part] += 1
            try:
                return function(*arguments, **named)
            finally:
                self.switch()
                self._open.pop()

        return wrapper


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="values")
    options = parser.parse_args()
    cli.limit_spinning()  # as the command does
    values: Counter[str] = Counter()

    def counted(function: Callable[..., Any], part: str) -> Callable[..., Any]:
        def wrapper(kernel: Any, piece: Any, rows: Any, *more: Any) -> Any:
            values[part] += len(rows) * (piece.stop - piece.start)
            return function(kernel, piece, rows, *more)

        return wrapper

    kernels.columns = counted(kernels.columns, "hot columns")
    products.products = counted(products.products, "passes")
    clock = Clock()
    for owner, name, part in PARTS:
        setattr(owner, name, clock.timed(getattr(owner, name), part))
    with tempfile.TemporaryDirectory() as folder:
        arguments = [options.config, "--run-dir", f"{folder}/run"]
        for value in options.values:
            arguments += ["--set", value]
        code = train.main(arguments)
    clock.switch()
    total = sum(clock.seconds.values())
    for part, seconds in clock.seconds.most_common():
        computed = f"{values[part] / 1e6:>10,.0f} million values" if values[part] else ""
        print(f"{part:<20} {seconds:>7.2f} s {clock.calls[part]:>8,} calls {computed}")
    print(f"{'all':<20} {total:>7.2f} s")
    return code


if __name__ == "__main__":
    sys.exit(main())
