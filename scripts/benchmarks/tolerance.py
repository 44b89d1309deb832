"""Choose the default tolerance: what a looser one costs in test accuracy, and what it saves.

    python -m scripts.benchmarks.tolerance --rows 20000 --out tolerance.json

Trains the block schedule on each data set for C from 0.1 to 1,000, once for every tolerance, and
compares with the tightest one. Data sets of up to 1,000 rows show no difference: `BigSVC` solves
them to rounding at any tolerance.
"""

import argparse
import json
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from scripts.benchmarks.problems import PROBLEMS, Problem, Split, select
from scripts.benchmarks.solvers import Result, block, fit_and_score, warm_up

CS = (0.1, 1.0, 10.0, 100.0, 1000.0)
TOLERANCES = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
MAX_ACCURACY_LOSS = 0.2  # points, at the default tolerance
# Cut to --rows, these are the rows of another data set once more.
REDUNDANT = ("covtype 100k",)


def data_sets() -> list[Problem]:
    """Return the first problem of every data set, for its gamma."""
    first = {problem.data: problem for problem in reversed(PROBLEMS)}
    return [p for p in PROBLEMS if first[p.data] is p and p.data not in REDUNDANT]


def subsample(split: Split, rows: int) -> Split:
    """Return a split with at most this many training rows, drawn at random."""
    X, y, X_test, y_test = split
    kept = np.sort(np.random.default_rng(0).permutation(len(y))[:rows])
    return X[kept], y[kept], X_test, y_test


def train(
    problem: Problem, split: Split, tolerances: Sequence[float], limit: float
) -> dict[float, Result]:
    """Train at every tolerance; a fit that reaches the time limit says so in its status."""
    return {
        tolerance: fit_and_score(
            block(problem.C, problem.gamma, tolerance).set_params(time_limit=limit),
            split,
            lambda event: None,
        )
        for tolerance in tolerances
    }


def compare(results: dict[float, Result]) -> list[dict[str, Any]]:
    """Compare every tolerance with the tightest.

    Returns
    -------
    list of dict
        For each but the tightest: tolerance, accuracy (difference in points), iterations and
        seconds (relative), and whether both fits converged.
    """
    tightest, *looser = sorted(results)
    reference = results[tightest]
    return [
        {
            "tolerance": tolerance,
            "converged": reference.status == results[tolerance].status == "converged",
            "accuracy": results[tolerance].accuracy - reference.accuracy,
            "iterations": results[tolerance].iterations / max(1, reference.iterations),
            "seconds": results[tolerance].seconds / reference.seconds,
        }
        for tolerance in looser
    ]


def format_line(title: str, compared: Sequence[dict[str, Any]]) -> str:
    """Return a line of the table; ? marks a comparison with a fit that did not converge."""
    cells = [
        f"{c['accuracy']:+7.2f}{' ' if c['converged'] else '?'} "
        f"{c['iterations']:5.2f} {c['seconds']:5.2f} "
        for c in compared
    ]
    return "|".join([title, *cells])


def summarize(comparisons: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return, for each tolerance, the worst accuracy and the mean savings over all problems.

    Fits that did not converge are left out: they do not tell what the tolerance does.
    """
    summary = []
    for column in zip(*comparisons, strict=True):
        converged = [c for c in column if c["converged"]]
        if not converged:
            continue
        mean = {
            key: float(np.exp(np.mean(np.log([max(c[key], 1e-9) for c in converged]))))
            for key in ("iterations", "seconds")
        }
        worst = min(c["accuracy"] for c in converged)
        tolerance, left_out = column[0]["tolerance"], len(column) - len(converged)
        summary.append({"tolerance": tolerance, "accuracy": worst, "left_out": left_out, **mean})
    return summary


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.benchmarks.tolerance", description=__doc__.split("\n")[0]
    )
    parser.add_argument(
        "--problems", nargs="+", default=[], metavar="SUBSTRING", help="of data sets; default: all"
    )
    parser.add_argument(
        "--tolerances", nargs="+", type=float, default=TOLERANCES, metavar="TOLERANCE"
    )
    parser.add_argument("--rows", type=int, default=20_000, help="to train on, at most")
    parser.add_argument(
        "--limit", type=float, default=600, metavar="SECONDS", help="for a fit; default: 600"
    )
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="write all results")
    options = parser.parse_args(arguments)
    options.tolerances = sorted(set(options.tolerances))
    if len(options.tolerances) < 2:
        parser.error("--tolerances: two or more are needed, to compare")
    options.problems = select(data_sets(), options.problems)
    if not options.problems:
        parser.error("no data set has such a name")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit code."""
    options = parse(arguments)
    warnings.simplefilter("ignore")  # the status says whether a fit converged
    tightest, *looser = options.tolerances
    width = max(len(problem.data) for problem in options.problems)
    columns = f"{'data set':<{width}} {'n':>7} {'gamma':>8} {'C':>6} {'acc %':>7} {'seconds':>8} "
    print(f"Accuracy (points), iterations and seconds (relative), against tolerance {tightest:g}")
    print("|".join([columns, *(f"{tolerance:^21g}" for tolerance in looser)]), flush=True)
    comparisons, records = [], []
    for data_set in options.problems:
        try:
            split = subsample(data_set.load(), options.rows)
        except FileNotFoundError as error:
            print(f"{data_set.data}: {error}", flush=True)
            continue
        warm_up("block", *split[0].shape)
        for C in CS:
            problem = Problem(data_set.data, C, data_set.gamma)
            results = train(problem, split, options.tolerances, options.limit)
            comparisons.append(compare(results))
            reference = results[tightest]
            title = (
                f"{problem.data:<{width}} {len(split[1]):>7,} {problem.gamma:>8.4g} {C:>6g} "
                f"{reference.accuracy:>7.2f} {reference.seconds:>8.2f} "
            )
            print(format_line(title, comparisons[-1]), flush=True)
            records += [
                {"problem": problem.name, "rows": len(split[1]), "tolerance": tolerance}
                | asdict(result)
                for tolerance, result in results.items()
            ]
            if options.out is not None:
                temporary = options.out.with_name(f".{options.out.name}.partial")
                temporary.write_text(json.dumps(records, indent=1) + "\n")
                temporary.replace(options.out)
    print("\nOver all: worst accuracy, geometric means of iterations and seconds")
    for line in summarize(comparisons):
        print(
            f"tolerance {line['tolerance']:<6g} {line['accuracy']:+6.2f} points  "
            f"iterations {line['iterations']:.2f}  seconds {line['seconds']:.2f}"
            + ("" if line["accuracy"] >= -MAX_ACCURACY_LOSS - 1e-9 else "  loses too much")
            + (f"  ({line['left_out']} did not converge)" if line["left_out"] else "")
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
