"""Flip single bits in checkpoints, models and stores, and see whether each is noticed.

    python -m scripts.reliability.bit_flips --flips 2000

Trains a small model, then flips one random bit at a time in a copy of what that left. A flip is
`reported` where the file is refused with its name, `without effect` where all that is read from it
is what was read before, and a deviation otherwise: other content, a crash, or another message.
"""

import argparse
import os
import random
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bigsvm.core.errors import UserError
from bigsvm.models.model import load_model
from bigsvm.preparation.data_sets import has_test
from bigsvm.stores.fingerprint import verified_fingerprint
from bigsvm.stores.store import open_dataset
from bigsvm.training.checkpoint import _read as read_checkpoint
from scripts import python_path

REPORTED, WITHOUT_EFFECT = "reported", "without effect"
MEMORY = 4 * 2**30  # a damaged size must not be believed

CONFIG = """
data: {train: STORE}
model: {C: 10, kernel: {name: rbf, sigma: 1}}
solver: {max_iterations: 300, threads: 1}
run: {checkpoint_every: 100, snapshot_every: 100}
"""


def checkpoint_content(path: Path) -> Any:
    saved = read_checkpoint(path)
    (of_two_classes,) = saved.state.classes
    state = dict(vars(of_two_classes))
    return [
        *(state.pop(name).tobytes() for name in ("alpha", "gradient", "role")),
        *(repr(state), saved.identity, saved.seconds),
    ]


def model_content(path: Path) -> Any:
    model = load_model(path)
    arrays = (model.support_vectors, model.dual_coef, model.support_index)
    return [
        *((array.dtype, array.shape, array.tobytes()) for array in arrays),
        *(model.kernel, model.classes, model.scaling, model.about),
    ]


def store_content(path: Path) -> Any:
    """All that training and testing take from a store."""
    content: list[Any] = [has_test(path)]
    for part in ("train", "test"):
        with open_dataset(path / part) as data:
            content += [
                *(verified_fingerprint(data), data.labels().tobytes(), data.classes),
                *(data.scaling, data.feature_names, data.source, data.prepare_options),
            ]
    return content


def make(folder: Path) -> dict[str, tuple[Path, Callable[[Path], Any]]]:
    """The things to damage: name -> (file or folder, how all of its content is read)."""

    def run(*arguments: object) -> None:
        command = [sys.executable, "-m", *map(str, arguments)]
        environment = os.environ | {"PYTHONPATH": python_path()}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")

    stores = {
        "Zarr store": folder / "s.zarr",
        "Zarr store, uncompressed": folder / "u.zarr",
        "HDF5 store": folder / "s.h5",
    }
    size = ("--rows", 120, "--features", 4, "--test-rows", 40, "--chunk-rows", 30)
    for name, store in stores.items():
        compression = ("--compression", "none") if "uncompressed" in name else ()
        run("bigsvm.prepare", "synthetic", store, *size, "--scaling", "standard", *compression)
    config = folder / "c.yaml"
    config.write_text(CONFIG.replace("STORE", str(folder / "s.zarr")))
    run("bigsvm.train", config, "--run-dir", folder / "run")
    checkpoint = max((folder / "run" / "checkpoints").iterdir())
    return {
        "checkpoint": (checkpoint, checkpoint_content),
        "model": (folder / "run" / "model.safetensors", model_content),
        **{name: (store, store_content) for name, store in stores.items()},
    }


def flip(path: Path, chance: random.Random) -> tuple[Path, int]:
    """Flip one bit in a file, or in one of the files of a folder, all bits equally likely."""
    files = sorted(file for file in [path, *path.rglob("*")] if file.is_file())
    sizes = [file.stat().st_size for file in files]
    file = chance.choices(files, sizes)[0]
    bit = chance.randrange(8 * file.stat().st_size)
    toggle(file, bit)
    return file, bit


def toggle(file: Path, bit: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(bit // 8)
        byte = opened.read(1)[0] ^ 1 << bit % 8
        opened.seek(bit // 8)
        opened.write(bytes([byte]))


def verdict(path: Path, read: Callable[[Path], Any], expected: Any) -> str:
    """What came of reading the damaged file: see the module."""
    try:
        return WITHOUT_EFFECT if read(path) == expected else "other content, unnoticed"
    except UserError as refusal:
        text = str(refusal)
        if str(path) not in text or "\n" in text:
            return f"refused, but not by name in one line: {text}"
        return REPORTED
    except Exception as crash:  # what this script is looking for
        return f"{type(crash).__name__}: {crash}"


def main() -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--flips", type=int, default=2000, metavar="N", help="default 2000")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the bits")
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    table: dict[str, Counter[str]] = {}
    deviations = []
    with tempfile.TemporaryDirectory(prefix="flip-bits-") as folder:
        things = make(Path(folder))
        whole = {name: read(path) for name, (path, read) in things.items()}
        for k in range(arguments.flips):
            name = list(things)[k % len(things)]
            path, read = things[name]
            file, bit = flip(path, chance)
            found = verdict(path, read, whole[name])
            toggle(file, bit)
            known = found in (REPORTED, WITHOUT_EFFECT)
            table.setdefault(name, Counter())[found if known else "deviation"] += 1
            if not known:
                place = f"{file.relative_to(folder)}, byte {bit // 8}, bit {bit % 8}"
                deviations.append(f"{name}: {place}: {found}")
        for name, (path, read) in things.items():
            if read(path) != whole[name]:
                sys.exit(f"{name}: not what it was at the beginning; this script is at fault")
    columns = (REPORTED, WITHOUT_EFFECT, "deviation")
    print(f"{'bit flips in':<26}{'flips':>7}" + "".join(f"{column:>16}" for column in columns))
    for name, counts in table.items():
        cells = "".join(f"{counts[column]:>16,}" for column in columns)
        print(f"{name:<26}{counts.total():>7,}{cells}")
    for deviation in deviations:
        print(f"  {deviation}")
    print(f"{arguments.flips:,} flips, {len(deviations)} deviations")
    return 1 if deviations else 0


if __name__ == "__main__":
    sys.exit(main())
