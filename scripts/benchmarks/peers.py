"""bigsvm beside its peers: fit time, prediction time, peak memory, support vectors, accuracy.

Every fit runs in a process of its own, all with the same rows and threads, each with its own best
(C, sigma) of the same grid, chosen on a validation part of the training rows. The candidates take
turns, and the best time of each counts (of memory, the largest). The fit time leaves out importing
and loading compiled code for all; bigsvm's has reading the data, checkpoints and saving in it, the
peers' is that of fit().
"""

import argparse
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.benchmarks.machine import machine
from scripts.benchmarks.peers_report import (
    CANDIDATES,
    Result,
    best_of,
    draw_accuracy,
    draw_growth,
    table,
)
from scripts.benchmarks.peers_runs import DATA, DISTURBED, Bench, Failed

EXAMPLES = """candidates: {names}

writes DIR/results.csv, table.txt, accuracy-over-time.png, growth.png, and log.txt

examples:
  python -m scripts.benchmarks.peers                                 MiniBooNE, all of it
  python -m scripts.benchmarks.peers --rows 3000 --repeat 1 --sizes 1000 2000    a quick look
  python -m scripts.benchmarks.peers --data ijcnn1 --skip sklearn --no-growth
  python -m scripts.benchmarks.peers --again exact block             after a change of bigsvm

Needs scikit-learn and scikit-learn-intelex for the peers. Run again, it resumes.
"""


def parse_arguments() -> argparse.Namespace:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=EXAMPLES.format(names=", ".join(CANDIDATES)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--data", choices=DATA, default="miniboone", help="default miniboone")
    add("--rows", type=int, metavar="N", help="train on N rows (default: all)")
    add("--out", type=Path, default=Path("bench"), metavar="DIR", help="default bench")
    add("--repeat", type=int, default=3, metavar="N", help="fits of each candidate (default 3)")
    add("--threads", type=int, default=cores, metavar="N", help=f"default {cores}, all")
    add("--skip", nargs="+", default=[], choices=CANDIDATES, metavar="NAME", help="candidates")
    add("--again", nargs="*", choices=CANDIDATES, metavar="NAME", help="measure again, all or "
        "these candidates (the chosen C and sigma stay: remove tuned-*.json)")  # fmt: skip
    add("--C", type=float, nargs="+", metavar="C", help="the grid (default: by data set)")
    add("--sigma", type=float, nargs="+", metavar="S", help="the grid (default: by data set)")
    add("--cache-mb", type=int, default=2000, metavar="MB", help="cache_size of SVC, scikit-learn's"
        " and scikit-learn-intelex's (default 2000; their own default is 200)")  # fmt: skip
    add("--no-growth", action="store_true", help="leave out the fits for growth.png")
    add("--sizes", type=int, nargs="+", default=[5000, 10000, 20000, 40000, 60000], metavar="N",
        help="rows for growth.png (default 5000 10000 20000 40000 60000)")  # fmt: skip
    add("--all", action="store_true", help="for growth.png, scikit-learn SVC beyond 20,000 rows")
    arguments = parser.parse_args()
    if not 1 <= arguments.threads <= cores:
        parser.error(f"--threads: there are {cores}")
    if arguments.repeat < 1 or (arguments.rows or 100) < 100 or min(arguments.sizes) < 1:
        parser.error("--repeat and --sizes begin at 1, --rows at 100")
    arguments.C = arguments.C or list(DATA[arguments.data].Cs)
    arguments.sigma = arguments.sigma or list(DATA[arguments.data].sigmas)
    return arguments


def available(skipped: Sequence[str]) -> list[str]:
    """The candidates whose packages are there; of the others, what to install."""
    names = []
    for name, candidate in CANDIDATES.items():
        if name in skipped:
            continue
        missing = [p for m, p in candidate.packages.items() if importlib.util.find_spec(m) is None]
        if missing:
            print(f"{candidate.label}: left out; pip install {' '.join(missing)}")
        else:
            names.append(name)
    return names


def compare(bench: Bench) -> int:
    """Run all of it, in order; return the number of failures."""
    options = bench.options
    names = available(options.skip)
    sizes = bench.prepare()
    rows = min(options.rows or sizes["train"], sizes["train"])
    title = f"{options.data}: {rows:,} rows to train on, {sizes['test']:,} to test"
    print(f"{machine(options.threads)}\n{title}\n\nbest parameters", flush=True)
    parameters: dict[str, tuple[float, float]] = {}
    failures = 0

    def attempt(name: str, what: Any) -> Any:
        nonlocal failures
        try:
            return what()
        except Failed as failure:
            failures += 1
            print(f"  {CANDIDATES[name].label:<26} FAILED: {failure}", flush=True)
            return None

    for name in names:
        found = attempt(name, lambda name=name: bench.best_parameters(name, rows))
        if found:
            parameters[name] = found

    def measure(name: str, n: int, repetition: int) -> Result | None:
        C, sigma = parameters[name]
        curve = n == rows and repetition == 1
        return attempt(name, lambda: bench.measure(name, n, repetition, C, sigma, curve))

    print("\nfits", flush=True)
    runs: dict[str, list[Result]] = {name: [] for name in parameters}
    for repetition in range(1, options.repeat + 1):
        for name in parameters:
            if result := measure(name, rows, repetition):
                runs[name].append(result)
    grown: dict[str, dict[int, float]] = {}
    for n in [] if options.no_growth else sorted({*(s for s in options.sizes if s <= rows), rows}):
        for name in parameters:
            slow = name == "sklearn" and 20_000 < n < rows and not options.all
            if CANDIDATES[name].at_most or slow:
                continue
            if result := measure(name, n, 1):  # at n = rows it is there already
                grown.setdefault(name, {})[n] = result["fit_seconds"]
    best = {name: best_of(results) for name, results in runs.items() if results}
    if best:
        text = f"{machine(options.threads)}\n{title}; best of {options.repeat}\n\n{table(best)}\n"
        (bench.out / "table.txt").write_text(text)
        print(f"\n{text}")
        if any(result["others"] > DISTURBED for result in best.values()):
            print("The machine was not quiet: see `others` in results.csv before you quote this.")
        draw_accuracy(bench.out / "accuracy-over-time.png", best, bench.curve)
    if grown:
        draw_growth(bench.out / "growth.png", grown)
    return failures


def main() -> int:
    """Run the script."""
    bench = Bench(parse_arguments())
    try:
        return 1 if compare(bench) else 0
    except Failed as failure:
        print(f"failed: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped; the same command resumes", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
