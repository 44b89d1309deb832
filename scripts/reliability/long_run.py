"""Train for an hour with a checkpoint every few seconds, and see whether anything grows.

    python -m scripts.reliability.long_run --minutes 60 --picture long_run.png

Trains the block schedule on synthetic data that is streamed from disk, for so long, and looks at
the memory, the open files and the threads of the process every few seconds. Draws all of it, and
prints the slope of each after the warm-up, the first third: until then caches fill up to their
bounds. Exit code 1 where something grew, or the training did not last or did not end well.

Needs Linux.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bigsvm.config import PrepareOptions
from bigsvm.files.atomic import atomic_write
from bigsvm.preparation.pipeline import prepare
from scripts import python_path

WARM_UP = 1 / 3
FEATURES = 50
CHECKPOINT_SECONDS = 5
ROOM = 96  # MiB, for data and kernel columns


@dataclass(frozen=True)
class Measure:
    """A measure, and how much it may seem to grow after the warm-up by chance alone."""

    name: str
    unit: str
    allowed: float
    share: bool  # whether `allowed` is a share of the mean


MEASURES = (
    Measure("memory", "MB", 0.02, share=True),
    Measure("open files", "", 1.0, share=False),
    Measure("threads", "", 1.0, share=False),
)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--minutes", type=float, default=60.0, metavar="M", help="how long (default 60)")
    add("--rows", type=int, default=500_000, metavar="N", help="of the data (default 500,000)")
    add("--threads", type=int, default=2, metavar="T", help="of the training (default 2)")
    add("--growth", type=float, default=MEASURES[0].allowed, metavar="SHARE",
        help="of memory that is still taken for chance (default 0.02)")  # fmt: skip
    add("--picture", type=Path, metavar="FILE.png", help="where to draw it")
    return parser.parse_args()


def make_problem(folder: Path, arguments: argparse.Namespace) -> Path:
    """Write the data and the config of a long training: its tolerance is out of reach."""
    options = PrepareOptions(rows=arguments.rows, features=FEATURES, noise=0.5)
    prepare("synthetic", folder / "data.zarr", options)
    config = folder / "long.yaml"
    values = {
        "data": {"train": str(folder / "data.zarr")},
        "model": {"C": 1.0, "kernel": {"name": "rbf", "sigma": 7.0}},
        "solver": {
            "schedule": "block",
            "hot_set": 1024,
            "absolute_tolerance": 1e-14,
            "max_iterations": 10**12,
            "time_limit": 60 * arguments.minutes,
            "threads": arguments.threads,
        },
        "run": {"checkpoint_seconds": CHECKPOINT_SECONDS, "snapshot_every": 20_000},
    }
    config.write_text(json.dumps(values))  # JSON is YAML
    return config


def memory_limit(command: list[str]) -> str:
    """Enough for the process and half of the data: the other half is read again in every pass."""
    too_little = [*command, "--set", "solver.memory_limit=1MiB"]
    refusal = subprocess.run(too_little, capture_output=True, text=True).stderr
    needed = re.search(r"at least (\d+)MiB are needed", refusal)
    if needed is None:
        sys.exit(f"does not say how much memory is needed: {refusal}")
    return f"{int(needed[1]) + ROOM}MiB"


def look(process: int) -> list[float]:
    """Memory, open files and threads of a process now."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines)
    files = len(list(Path(f"/proc/{process}/fd").iterdir()))
    return [int(status["VmRSS"].split()[0]) / 1000, files, int(status["Threads"])]


def watch(process: "subprocess.Popen[bytes]", run_dir: Path, pause: float) -> tuple[Any, int]:
    """Rows of (seconds, memory, open files, threads) to its end, and how many checkpoints came."""
    while process.poll() is None and not (run_dir / "metrics.jsonl").exists():
        time.sleep(0.05)
    begin = time.monotonic()
    rows, seen = [], set()
    while process.poll() is None:
        try:
            rows.append([time.monotonic() - begin, *look(process.pid)])
            for path in (run_dir / "checkpoints").glob("checkpoint-*"):
                seen.add((path.name, path.stat().st_mtime_ns))
        except (OSError, KeyError):
            continue  # it has just ended, or the checkpoint was just removed
        time.sleep(pause)
    return np.array(rows), len(seen)


def growth(seconds: np.ndarray, values: np.ndarray) -> tuple[float, float]:
    """Slope per second and total rise of a line fitted to the values after the warm-up."""
    settled = seconds >= WARM_UP * seconds[-1]
    slope = float(np.polyfit(seconds[settled], values[settled], 1)[0])
    return slope, slope * float(np.ptp(seconds[settled]))


def verdicts(rows: np.ndarray, share_of_memory: float) -> tuple[list[str], bool]:
    """A line for each measure, and whether any of them grew."""
    lines, grew = [], False
    settled = rows[rows[:, 0] >= WARM_UP * rows[-1, 0]]
    for measure, values in zip(MEASURES, rows.T[1:], strict=True):
        slope, rise = growth(rows[:, 0], values)
        middle = float(np.mean(settled[:, 1 + MEASURES.index(measure)]))
        allowed = share_of_memory * middle if measure.share else measure.allowed
        grows = rise > allowed
        grew = grew or grows
        unit = f" {measure.unit}" if measure.unit else ""
        lines.append(
            f"{measure.name:<12}{middle:>8.1f}{unit:<3}  slope {3600 * slope:+.2f}{unit} an hour, "
            f"rise {rise:+.2f}{unit} (allowed {allowed:.2f}): {'GROWS' if grows else 'steady'}"
        )
    return lines, grew


def draw(path: Path, rows: np.ndarray, title: str) -> None:
    """Memory above, open files and threads below."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.4), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    minutes = rows[:, 0] / 60
    above.plot(minutes, rows[:, 1], color="#0072B2", linewidth=1)
    above.set_ylabel("Memory (MB)")
    for column, (name, colour) in enumerate((("open files", "#D55E00"), ("threads", "#009E73")), 2):
        below.plot(minutes, rows[:, column], color=colour, linewidth=1, label=name)
    below.set_xlabel("Minutes of training")
    below.legend(frameon=False, loc="lower right", ncols=2)
    for axes in (above, below):
        axes.set_ylim(bottom=0)
        axes.grid(color="0.9", linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
    above.axvline(WARM_UP * minutes[-1], color="0.6", linewidth=0.8, linestyle="--")
    above.set_title(title, fontsize=9)
    with atomic_write(path) as temporary:
        figure.savefig(temporary, format="png", dpi=110)


def main() -> int:
    """Run the script."""
    arguments = parse_arguments()
    os.environ["PYTHONPATH"] = python_path()
    with tempfile.TemporaryDirectory(prefix="long-run-") as name:
        folder = Path(name)
        config, run_dir, log = make_problem(folder, arguments), folder / "run", folder / "log"
        command = [sys.executable, "-m", "bigsvm.train", str(config), "--run-dir", str(run_dir)]
        limit = memory_limit(command)
        with log.open("wb") as file:
            process = subprocess.Popen(
                [*command, "--set", f"solver.memory_limit={limit}"], stdout=file, stderr=file
            )
        try:
            rows, checkpoints = watch(process, run_dir, min(2.0, arguments.minutes / 10))
        finally:
            process.kill()
            process.wait()
        if process.returncode != 0 or len(rows) < 10:
            print(log.read_text()[-2000:])
            return 1
        summary = json.loads((run_dir / "summary.json").read_text())
        snapshots = len(list((run_dir / "snapshots").iterdir()))
    lines, grew = verdicts(rows, arguments.growth)
    what = (
        f"{arguments.rows:,} x {FEATURES} rows streamed from disk, block schedule, "
        f"{arguments.threads} threads at nice {os.nice(0)}, limit {limit}\n"
        f"{rows[-1, 0] / 60:.0f} minutes, {summary['iterations']:,} iterations, "
        f"{summary['passes']:,} passes, {checkpoints:,} checkpoints, {snapshots:,} snapshots"
    )
    print(what, *lines, sep="\n")
    if arguments.picture:
        draw(arguments.picture, rows, what)
    if summary["status"] != "time_limit":
        print(f"it ended before the time was up: {summary['status']}")
        return 1
    return 1 if grew else 0


if __name__ == "__main__":
    sys.exit(main())
