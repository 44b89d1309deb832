"""Kill a training again and again, and see whether it comes to the same bits.

    python scripts/kill_and_resume.py configs/quickstart.yaml --kills 20

Trains once undisturbed. Then trains again, killed (kill -9) at random moments and resumed each time
by the same command; the moments are spread evenly over the time of the undisturbed run. A killed
run that came to its end is compared with the undisturbed one, the final model and every snapshot
byte for byte, and another is begun, until there were as many kills as asked for.
"""

import argparse
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent


def command(arguments: argparse.Namespace, run_dir: Path) -> list[str]:
    """The command of the training in `run_dir`."""
    sets = [part for setting in arguments.set for part in ("--set", setting)]
    run = [sys.executable, "-m", "bigsvm.train", str(arguments.config), "--run-dir", str(run_dir)]
    return [*run, *sets]


def start(asked: list[str], log: Path) -> "subprocess.Popen[bytes]":
    path = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path}
    with log.open("ab") as file:
        return subprocess.Popen(asked, stdout=file, stderr=file, env=environment)


def train_to_the_end(asked: list[str], log: Path) -> float:
    """Train, and return the seconds it took."""
    begin = time.monotonic()
    code = start(asked, log).wait()
    if code != 0:
        sys.exit(f"the training failed with exit code {code}:\n{log.read_text()[-2000:]}")
    return time.monotonic() - begin


def newest_checkpoint(run_dir: Path) -> int:
    """The iteration of the newest checkpoint; 0 where there is none."""
    paths = (run_dir / "checkpoints").glob("checkpoint-*.safetensors")
    return max((int(path.stem.removeprefix("checkpoint-")) for path in paths), default=0)


def kill_after(asked: list[str], log: Path, seconds: float) -> bool:
    """Start the training and kill it after so long; whether it was at work still."""
    process = start(asked, log)
    try:
        code = process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        code = process.wait()
    if code not in (0, -signal.SIGKILL):
        sys.exit(f"the training failed with exit code {code}:\n{log.read_text()[-2000:]}")
    return code != 0


def differences(undisturbed: Path, killed: Path) -> tuple[list[str], int]:
    """What differs between two finished runs, and how many model files were compared."""
    names = [
        {str(path.relative_to(run)) for path in run.rglob("model*.safetensors")}
        for run in (undisturbed, killed)
    ]
    found = [f"{name}: only in one of the runs" for name in sorted(names[0] ^ names[1])]
    both = sorted(names[0] & names[1])
    for name in both:
        if (undisturbed / name).read_bytes() != (killed / name).read_bytes():
            found.append(f"{name}: other bytes")
    ends = [json.loads((run / "summary.json").read_text()) for run in (undisturbed, killed)]
    for key in ("status", "iterations", "gap", "true_gap", "objective", "n_support", "n_working"):
        if ends[0].get(key) != ends[1].get(key):
            found.append(f"summary.json: {key} {ends[0].get(key)} and {ends[1].get(key)}")
    found += [f"{path}: left over" for path in sorted(killed.rglob(".*.tmp"))]
    return found, len(both)


@contextmanager
def working_folder(given: Path | None) -> Iterator[Path]:
    if given is None:
        with tempfile.TemporaryDirectory(prefix="kill-and-resume-") as folder:
            yield Path(folder)
    else:
        given.mkdir(parents=True, exist_ok=True)
        if any(given.iterdir()):
            sys.exit(f"{given}: is not empty")
        yield given


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", type=Path, metavar="CONFIG.yaml")
    parser.add_argument("--kills", type=int, default=20, metavar="N", help="default 20")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the moments")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="as for bigsvm.train"
    )
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="put the runs there and leave them"
    )
    return parser.parse_args()


def main() -> int:
    """Run the script."""
    arguments = parse_arguments()
    chance = random.Random(arguments.seed)
    found: list[str] = []
    kills = runs = compared = 0
    with working_folder(arguments.keep) as folder:
        undisturbed, log = folder / "undisturbed", folder / "log.txt"
        # The first start may make the store, and compile: the time that counts is the second's.
        train_to_the_end(command(arguments, folder / "warm-up"), log)
        seconds = train_to_the_end(command(arguments, undisturbed), log)
        print(f"undisturbed: {seconds:.1f} s, {newest_checkpoint(undisturbed):,} iterations\n")
        print("  run  kill   after s  checkpoint before  and after")
        ended = True
        while kills < arguments.kills or not ended:
            if ended:
                runs += 1
                run_dir = folder / f"killed-{runs}"
            # When there were kills enough, the last run is let go to its end.
            moment = chance.uniform(0, seconds) if kills < arguments.kills else math.inf
            before = newest_checkpoint(run_dir)
            ended = not kill_after(command(arguments, run_dir), log, min(moment, 1e6))
            kills += not ended
            after = newest_checkpoint(run_dir)
            fate = f"{'':>5}       end" if ended else f"{kills:>5}  {moment:>8.2f}"
            print(f"{runs:>5} {fate}  {before:>17,}  {after:>9,}", flush=True)
            if after < before:
                found.append(f"{run_dir.name}: the checkpoint at {before} was lost")
            if ended:
                others, files = differences(undisturbed, run_dir)
                found += [f"{run_dir.name}: {other}" for other in others]
                compared += files
    print(f"\n{kills} kills of {runs} runs; {compared} model files compared")
    for difference in found:
        print(f"  {difference}")
    same = not found and compared > 0
    print("verdict: the same bits" if same else "verdict: DIFFERENT")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
