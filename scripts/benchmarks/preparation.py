"""Peak memory and speed of `prepare` on a large made-up text file.

    python -m scripts.benchmarks.preparation [--gigabytes 2.1] [--format csv]

The file is made in a temporary folder, block by block (the same random block again and again: a
parser's work and memory do not depend on the digits), and removed at the end.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

FEATURES = 50
BLOCK_ROWS = 10_000


def text_block(separator: str, label: str) -> bytes:
    """Rows like those of MiniBooNE: 50 numbers of six digits, of very different size."""
    values = np.random.default_rng(0).lognormal(0, 3, size=(BLOCK_ROWS, FEATURES))
    rows = (separator.join(f"{value:.6g}" for value in row) + label for row in values)
    return ("\n".join(rows) + "\n").encode()


def write_input(path: Path, kind: str, size: int) -> int:
    """Write about `size` bytes, half of the rows in each class; return the number of rows."""
    blocks = [text_block(",", ",yes"), text_block(",", ",no")]
    if kind == "miniboone":
        blocks = [text_block(" ", "")] * 2
    each = max(1, size // (2 * len(blocks[0])))
    with path.open("wb") as file:
        if kind == "miniboone":
            file.write(f"{each * BLOCK_ROWS} {each * BLOCK_ROWS}\n".encode())
        for block in blocks:
            for _ in range(each):
                file.write(block)
    return 2 * each * BLOCK_ROWS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=2.1)
    parser.add_argument("--format", choices=("miniboone", "csv"), default="miniboone")
    parser.add_argument("--store", default="s.zarr", help="name of the store: *.zarr or *.h5")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="measure_prepare.") as folder:
        path = Path(folder) / "input.txt"
        rows = write_input(path, arguments.format, int(arguments.gigabytes * 1e9))
        store = Path(folder) / arguments.store
        options = ["--format", arguments.format, "--scaling", "standard", "--clip", "8"]
        options += ["--test-fraction", "0.1", "--drop-value", "-999"]
        command = [sys.executable, "-m", "bigsvm.prepare", str(path), str(store), *options]
        begin = time.monotonic()
        process = subprocess.Popen(command)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - begin
        size = path.stat().st_size
        files = [store] if store.is_file() else [f for f in store.rglob("*") if f.is_file()]
        stored = sum(file.stat().st_size for file in files if file.exists())
    print()
    print("| input | rows x features | input GB | store GB | seconds | MB/s | peak RSS MB |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    print(
        f"| {arguments.format} text to {store.suffix} | {rows:,} x {FEATURES} | {size / 1e9:.2f} "
        f"| {stored / 1e9:.2f} | {seconds:.0f} | {size / seconds / 1e6:.0f} "
        f"| {usage.ru_maxrss * 1024 / 1e6:.0f} |"  # Linux counts it in KiB
    )
    return process.returncode


if __name__ == "__main__":
    sys.exit(main())
