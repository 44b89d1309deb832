"""Robustness of the block schedule: many problems, beside the exact schedule and a peer.

    python -m scripts.benchmarks.robustness --problems german magic --check

Each solver runs in a fresh process. Times are of the fit alone, without imports, data loading and
loading of compiled code. What the columns mean is in README.md in this folder.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from scripts.benchmarks.problems import PROBLEMS, Problem, select
from scripts.benchmarks.robustness_table import format_row, header, table_row
from scripts.benchmarks.solvers import Result, run, solver_tolerance


class Records:
    """Results by problem, solver and tolerance, kept in a JSON file.

    Parameters
    ----------
    path : Path or None
        Read if it exists, and replaced atomically at every change; None keeps results in memory.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._records: dict[tuple[str, str, float], dict[str, Any]] = {}
        if path is not None and path.exists():
            for record in json.loads(path.read_text()):
                key = record["problem"], record["solver"], record["tolerance"]
                self._records[key] = record

    def add(self, problem: Problem, solver: str, tolerance: float, runs: list[Result]) -> Result:
        """Store the fastest of several runs, and return it."""
        best = min(runs, key=lambda result: result.seconds or 0.0)  # a failure is never hidden
        tolerance = solver_tolerance(solver, tolerance)
        self._records[problem.name, solver, tolerance] = {
            "problem": problem.name,
            "solver": solver,
            "tolerance": tolerance,
            "runs": len(runs),
            **asdict(best),
            "work": best.work,
        }
        if self._path is not None:
            temporary = self._path.with_name(f".{self._path.name}.partial")
            temporary.write_text(json.dumps(list(self._records.values()), indent=1) + "\n")
            temporary.replace(self._path)
        return best

    def find(
        self, problem: Problem, solver: str, tolerance: float, repeat: int, limit: float
    ) -> Result | None:
        """Return a stored result, if measuring again could not say more."""
        key = problem.name, solver, solver_tolerance(solver, tolerance)
        record = self._records.get(key)
        if record is None or record["seconds"] is None:
            return None
        timed_out = record["status"] == "timeout"
        if (record["seconds"] < limit) if timed_out else (record["runs"] < repeat):
            return None
        return Result(**{field.name: record[field.name] for field in fields(Result)})


def measure(problem: Problem, options: argparse.Namespace, records: Records) -> dict[str, Result]:
    """Run the solvers on a problem; block and intelex alternate, so that both meet the same load.

    Returns
    -------
    dict
        The `Result` of block, intelex and exact.
    """
    tolerance, limit = options.tolerance, options.limit
    repeats = {"block": options.repeat, "intelex": options.repeat, "exact": 1}
    results, runs = {}, {solver: list[Result]() for solver in repeats}
    if not options.fresh:
        for solver in ("intelex", "exact"):
            if found := records.find(problem, solver, tolerance, repeats[solver], limit):
                results[solver] = found
    measured = [solver for solver in repeats if solver not in results]
    for repetition in range(options.repeat):
        for solver in measured:
            if repetition >= repeats[solver] or (runs[solver] and runs[solver][-1].n is None):
                continue  # without a model there is nothing to time again
            result = run(solver, problem, tolerance, limit)
            runs[solver].append(result)
            results[solver] = records.add(problem, solver, tolerance, runs[solver])
            if result.status == "no data":
                return dict.fromkeys(repeats, result)
    return results


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.benchmarks.robustness", description=__doc__.split("\n")[0]
    )
    parser.add_argument(
        "--problems", nargs="+", default=[], metavar="SUBSTRING", help="of the names; default: all"
    )
    parser.add_argument("--list", action="store_true", help="print the problems, and run nothing")
    parser.add_argument("--tolerance", type=float, help="of block and exact; default: BigSVC's")
    parser.add_argument("--repeat", type=int, default=1, metavar="K", help="best time of K runs")
    parser.add_argument(
        "--limit", type=float, default=1800, metavar="SECONDS", help="for a fit; default: 1800"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE.json",
        help="keep results; exact's and intelex's are reused",
    )
    parser.add_argument("--fresh", action="store_true", help="measure exact and intelex again")
    parser.add_argument(
        "--check", action="store_true", help="mark figures off target; exit code 1 if there are any"
    )
    options = parser.parse_args(arguments)
    if options.repeat < 1 or options.limit <= 0:
        parser.error("--repeat and --limit must be positive")
    options.problems = select(PROBLEMS, options.problems)
    if not options.problems:
        parser.error("no problem has such a name; see --list")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit code."""
    options = parse(arguments)
    if options.list:
        print("\n".join(problem.name for problem in options.problems))
        return 0
    if options.tolerance is None:
        from bigsvm import BigSVC

        options.tolerance = BigSVC().tol
    records = Records(options.out)
    if (load := os.getloadavg()[0]) > 0.5:
        print(f"The load of this machine is {load:.1f}: times are not reliable.", file=sys.stderr)
    print(header(), flush=True)
    met: list[bool] = []
    for problem in options.problems:
        results = measure(problem, options, records)
        row = table_row(problem, options.tolerance, results)
        print(format_row(problem.name, row, results, options.check), flush=True)
        for message in {f"{r.status}: {r.message}": None for r in results.values() if r.message}:
            print(f"  {message}", flush=True)
        met += [f.met for figures in row.values() for f in figures if f.met is not None]
    if options.check:
        print(f"\n{met.count(False)} of {len(met)} figures miss their target (*); - not measured")
        return int(not met or False in met)
    return 0


if __name__ == "__main__":
    sys.exit(main())
