"""A page about one or several runs: python -m bigsvm.report RUN_DIR [...]."""

import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from bigsvm import cli
from bigsvm.core.errors import UserError
from bigsvm.files.atomic import write_text
from bigsvm.terminal.logs import AS_MODULE, as_called, log
from bigsvm.training.run_dir import run_labels

EXAMPLES = """writes one HTML file that needs no network: how the runs ended and what to do next,
the course of the training, scores and curves on the test set, work, memory and config. Snapshots
that were not scored yet are scored first, as by python -m bigsvm.evaluate.

examples:
  python -m bigsvm.report runs/miniboone                     runs/miniboone/report.html
  python -m bigsvm.report runs/fw runs/mfw --out both.html   side by side
  python -m bigsvm.report runs/miniboone --follow            live, beside a training
"""


def parse_arguments(argv: Sequence[str] | None) -> Namespace:
    """Read the command line."""
    parser = cli.Arguments(
        "bigsvm.report",
        "Write a page about one or several runs, or serve it while they train.",
        EXAMPLES,
    )
    add = parser.add_argument
    add("runs", metavar="RUN_DIR", nargs="+", type=Path, help="written by python -m bigsvm.train")
    add("--out", metavar="FILE.html", type=Path, help="(default: report.html, in the run directory "
        "if there is one run)")  # fmt: skip
    add("--follow", action="store_true", help="serve the page on this machine only, and update it "
        "until Ctrl-C; then write it")  # fmt: skip
    add("--labels", metavar="NAME", nargs="+", help="of the runs")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `python -m bigsvm.report`."""
    arguments = parse_arguments(argv)
    labels = run_labels(arguments.runs, arguments.labels)
    out = arguments.out or (arguments.runs[0] if len(labels) == 1 else Path()) / "report.html"
    if arguments.out:
        cli.check_output("--out", out, [".html", ".htm"], "a report is an HTML file")
    # Imported here, so that --help need not wait for numba.
    from bigsvm.inspection.report import RunReport, page, report_data
    from bigsvm.inspection.run import is_run
    from bigsvm.inspection.serve import serve
    from bigsvm.terminal.compiling import notify_compilation
    from bigsvm.training.evaluation import RunEvaluation

    for folder in arguments.runs:
        if not (is_run(folder) or (arguments.follow and not folder.exists())):
            raise UserError(f"{folder}: is not a run directory, as python -m bigsvm.train makes it")
    runs = [
        RunReport(label, RunEvaluation(folder), as_called(AS_MODULE))
        for label, folder in zip(labels, arguments.runs, strict=True)
    ]
    with notify_compilation():
        if arguments.follow:
            serve(runs)
        for run in runs:
            run.evaluate()
            if run.problem is not None:
                log(f"warning: {run.run.folder}: {run.problem}")
    if not out.parent.is_dir():
        raise UserError(f"{out.parent}: the run never began; there is nothing to report")
    made = f"Made {time.strftime('%Y-%m-%d %H:%M')} by bigsvm {cli.VERSION}"
    write_text(out, page(report_data(runs, made)))
    print(f"written: {out}")
    return 0


if __name__ == "__main__":
    sys.exit(cli.run(main))
