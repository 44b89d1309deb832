"""The paper's tables and figures with bigsvm's beside them: python -m scripts.paper.reproduce

Runs the experiments of Alaiz and Suykens' paper, in parallel, and writes CSV files, pictures and
report.html (which needs no other file) into the output folder. Every finished piece of work is
kept: after Ctrl-C, a kill or a power cut the same command resumes.
"""

import csv
import sys
import time
from argparse import ArgumentTypeError, Namespace
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from bigsvm import cli
from bigsvm.core.errors import UserError

# In the order of the page. One that needs another's results computes them.
EXPERIMENTS = {
    "datasets": "table: sizes of the data sets",
    "fixed-C": "what 'C = 1 (normalized)' means: guesses against the paper's counts",
    "alpha-against-weight": "figure: one pattern's weight varied, three C",
    "weighted-simplex": "figure: the weighted simplex of three patterns",
    "larger": "table: test results of ijcnn1 and magic",
    "over-C": "figure: accuracy, support vectors and iterations over C, ijcnn1 and magic",
    "exhaustive": "tables: nine sets, two kernels, three models, ten repetitions; the summary",
    "miniboone": "figure: MiniBooNE's evolution over 40,000 iterations",
    "initialization": "table: overlap of support sets over all starts",
    "initialization-heart": "figure: heart over C, from all starts",
}
EXAMPLES = f"""names:
{chr(10).join(f"  {name:<22}{what}" for name, what in EXPERIMENTS.items())}

examples:
  python -m scripts.paper.reproduce --quick         small problems only, to see that all works
  python -m scripts.paper.reproduce                 everything; the same command resumes it
  python -m scripts.paper.reproduce exhaustive fixed-C --out paper-run --processes 8
  python -m scripts.paper.reproduce miniboone --miniboone MiniBooNE_PID.txt      the whole UCI set

The data sets are looked for in the folder that BIGSVM_DATA names, then in the cache, then
downloaded. DIR/work holds what is finished; remove it to start over.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    arguments = parse_arguments(argv)
    from scripts.paper.explanations import PREFACE, explained
    from scripts.paper.report import write_page
    from scripts.paper.tables import write_csv
    from scripts.paper.task_cache import TaskCache

    out: Path = arguments.out
    work = out / "work" / ("quick" if arguments.quick else "full")
    work.mkdir(parents=True, exist_ok=True)
    names = list(dict.fromkeys(arguments.names or EXPERIMENTS))
    began = time.monotonic()
    _estimate(arguments)
    sections = []
    with TaskCache(
        work, arguments.processes, arguments.quick, arguments.repetitions, arguments.miniboone
    ) as tasks:
        for place, name in enumerate(names, 1):
            print(f"[{place}/{len(names)}] {name}", file=sys.stderr, flush=True)
            module = import_module(f"scripts.paper.{name.lower().replace('-', '_')}")
            sections.append(explained(module.run(tasks, out)))
            sections.sort(key=lambda section: list(EXPERIMENTS).index(section.name))
            write_page(out / "report.html", sections, PREFACE)
        seconds = [{"task": task, "seconds": round(s, 1)} for task, s in tasks.seconds().items()]
    write_csv(out / "seconds.csv", seconds)
    print(
        f"{out / 'report.html'}: {len(names)} tables and figures after "
        f"{time.monotonic() - began:.0f} s; in all "
        f"{sum(line['seconds'] for line in seconds) / 60:.1f} minutes of one core"
    )
    return 0


def _estimate(arguments: Namespace) -> None:
    """What a full run took where its results are kept; the progress of each part is more exact."""
    kept = Path(__file__).parent / "results" / "seconds.csv"
    if arguments.quick or arguments.names or not kept.exists():
        return
    with kept.open() as file:
        minutes = sum(float(line["seconds"]) for line in csv.DictReader(file)) / 60
    print(
        f"about {minutes / arguments.processes:.0f} minutes on {arguments.processes} free cores "
        "(less what is finished already)",
        file=sys.stderr,
    )


def parse_arguments(argv: Sequence[str] | None) -> Namespace:
    """Read the command line."""
    parser = cli.Arguments("scripts.paper.reproduce", __doc__.split("\n\n")[1], EXAMPLES)
    add = parser.add_argument
    add(
        "names",
        nargs="*",
        metavar="NAME",
        help="tables and figures, done in this order (default: all)",
    )
    add("--quick", action="store_true", help="small problems only, to see that all works")
    add("--out", type=Path, default="paper-results", metavar="DIR", help="default: %(default)s")
    add("--processes", type=_positive, default=2, metavar="N", help="default: %(default)s")
    add(
        "--repetitions", type=int, default=10, choices=range(2, 11), metavar="N",
        help="how many of the ten partitions of the nine sets; more can follow (default: all)",
    )  # fmt: skip
    add("--miniboone", type=Path, metavar="FILE", help="the whole UCI file, where it is present")
    arguments = parser.parse_args(argv)
    for name in arguments.names:
        if name not in EXPERIMENTS:
            raise UserError(f"{name!r} is no table or figure; known are: {', '.join(EXPERIMENTS)}")
    if arguments.miniboone and not arguments.miniboone.is_file():
        raise UserError(f"--miniboone {arguments.miniboone}: there is no such file")
    return arguments


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


if __name__ == "__main__":
    sys.exit(cli.run(main))
