"""How much memory `predict` takes as rows and support vectors grow.

python -m scripts.benchmarks.prediction [FOLDER]
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bigsvm.models.model import Model

FEATURES = 20


def write_rows(path: Path, rows: int) -> None:
    """A Parquet file, or a CSV file, of random rows."""
    random = np.random.default_rng(0)
    names = [f"x{k}" for k in range(FEATURES)]
    schema = pa.schema([(name, pa.float32()) for name in names])
    with pq.ParquetWriter(path, schema) if path.suffix == ".parquet" else path.open("w") as file:
        for start in range(0, rows, 100_000):
            part = random.normal(size=(min(100_000, rows - start), FEATURES)).astype(np.float32)
            if path.suffix == ".parquet":
                file.write_table(pa.table(list(part.T), schema=schema))
            else:
                np.savetxt(file, part, fmt="%.5g", delimiter=",")


def write_model(path: Path, support: int) -> None:
    random = np.random.default_rng(1)
    vectors = random.normal(size=(support, FEATURES)).astype(np.float32)
    coef = random.normal(size=support) / support
    Model(vectors, coef, np.arange(support), {"name": "rbf", "gamma": 0.05}, (-1, 1)).save(path)


def measure(rows: int, support: int, source: str, out: str, folder: Path) -> None:
    write_rows(folder / source, rows)
    write_model(folder / "m.safetensors", support)
    command = "bigsvm.predict", folder / "m.safetensors", folder / source, folder / out
    options = "--no-labels", "--quiet", "--overwrite"
    child = subprocess.run(
        [sys.executable, "-c", MEASURED, *map(str, command), *options],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    seconds, peak = child.stdout.split()
    size = (folder / source).stat().st_size / 1e6
    print(
        f"{rows:>10,} rows ({source.split('.')[1]}, {size:,.0f} MB) to {out.split('.')[1]}, "
        f"{support:>9,} support vectors: {float(seconds):6.1f} s, peak {int(peak) / 1e6:,.0f} MB",
        flush=True,
    )


MEASURED = """
import runpy, sys, time
from bigsvm.backends.memory import peak_resident_set
began = time.monotonic()
sys.argv = sys.argv[1:]
try:
    runpy.run_module(sys.argv[0], run_name="__main__")
except SystemExit as end:
    assert not end.code, end.code
print(time.monotonic() - began, peak_resident_set())
"""

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "folder", metavar="FOLDER", nargs="?", help="where its files go for a while"
    )
    with tempfile.TemporaryDirectory(dir=parser.parse_args().folder) as name:
        place = Path(name)
        for rows in (100_000, 2_000_000, 10_000_000):
            measure(rows, 100, "rows.parquet", "out.zarr", place)
        measure(10_000_000, 100, "rows.parquet", "out.parquet", place)
        for rows in (100_000, 2_000_000):
            measure(rows, 100, "rows.csv", "out.csv", place)
        for support in (1_000, 1_000_000):
            measure(5_000, support, "rows.parquet", "out.csv", place)
