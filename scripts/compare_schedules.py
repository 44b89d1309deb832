"""Block against exact: python scripts/compare_schedules.py [--sets miniboone ijcnn1 ...]

Trains each set by both schedules with the real command, and prints what came of it. The real sets
need BIGSVM_DATA, or the network.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

SETS = {
    "miniboone": (
        {"source": "miniboone", "prepare": {"scaling": "standard", "clip": 8, "test_rows": 12825}},
        6,
        1,
    ),
    "ijcnn1": ({"source": "ijcnn1"}, 1, 16),
    "magic": ({"source": "magic", "prepare": {"scaling": "standard", "test_rows": 6000}}, 1.5, 10),
    "board-little-noise": (
        {
            "source": "synthetic",
            "prepare": {
                "rows": 40000,
                "features": 10,
                "noise": 0.05,
                "test_rows": 10000,
                "scaling": "standard",
            },
        },
        0.5,
        10,
    ),
    "board-much-overlap": (
        {
            "source": "synthetic",
            "prepare": {
                "rows": 40000,
                "features": 10,
                "noise": 0.2,
                "test_rows": 10000,
                "scaling": "standard",
            },
        },
        1,
        1,
    ),
}


def train(name: str, schedule: str, algorithm: str, C: float | None, folder: Path) -> dict:
    data, sigma, usual_C = SETS[name]
    config = {
        "data": data,
        "model": {
            "algorithm": algorithm,
            "C": C or usual_C,
            "kernel": {"name": "rbf", "sigma": sigma},
        },
        "solver": {
            "schedule": schedule,
            "absolute_tolerance": 1e-5,  # the paper's
            "max_iterations": 200_000,
            "memory_limit": "4GiB" if schedule == "exact" else "512MiB",
        },
        "run": {"snapshot_every": 10**9},
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    command = [
        sys.executable,
        "-m",
        "bigsvm.train",
        str(path),
        "--fresh",
        "--run-dir",
        str(folder / "run"),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return json.loads((folder / "run" / "summary.json").read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--algorithm", default="mfw", choices=["fw", "mfw"])
    parser.add_argument("--C", type=float, nargs="+", default=[None], help="instead of the usual C")
    options = parser.parse_args()
    print(
        f"{'set':<20} {'C':>6} {'schedule':<8} {'iterations':>10} {'passes':>6} {'seconds':>8} ",
        end="",
    )
    print(f"{'peak MB':>8} {'objective':>10} {'SVs':>7} {'accuracy':>9}")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.sets:
            for C in options.C:
                for schedule in ("exact", "block"):
                    s = train(name, schedule, options.algorithm, C, Path(folder))
                    print(
                        f"{name:<20} {C or SETS[name][2]:>6g} {schedule:<8} {s['iterations']:>10,} "
                        f"{s['passes']:>6,} {s['train_seconds']:>8.1f} "
                        f"{s['peak_rss_bytes'] / 1e6:>8.0f} "
                        f"{s['objective']:>10.4e} {s['n_support']:>7,} "
                        f"{100 * s['accuracy']:>7.2f} %"
                        + ("" if s["status"] == "converged" else f"  {s['status']}"),
                        flush=True,
                    )


if __name__ == "__main__":
    main()
