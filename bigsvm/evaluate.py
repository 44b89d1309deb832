"""Every snapshot of a run against a test set: python -m bigsvm.evaluate RUN_DIR [...]."""

import json
import sys
import time
from argparse import Namespace, RawDescriptionHelpFormatter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from bigsvm import cli
from bigsvm.core.errors import TrainerGone, UserError
from bigsvm.core.progress import Progress, no_progress
from bigsvm.core.yaml_dialect import read_yaml
from bigsvm.models.curves import write_curves
from bigsvm.models.evaluation import (
    HEADING,
    Confusion,
    Row,
    evaluate_snapshots,
    write_confusion,
    write_csv,
)
from bigsvm.terminal.progress import show_progress

if TYPE_CHECKING:
    from bigsvm.models.scoring import Spec

OVER = ("converged", "max_iterations", "time_limit")  # interrupted: it may still go on
POLL_SECONDS = 1.0
# A run without a summary that no trainer holds is given up after this time: soon where one was seen
# to let go of it, late where none was. (It may be about to start, or the lock of another machine
# not be seen here.)
SECONDS_AFTER_TRAINER = 10.0
SECONDS_WITHOUT_TRAINER = 600.0


class Run:
    """A run directory and the rows its snapshots have given so far."""

    def __init__(self, folder: Path, test: "Spec | None" = None) -> None:
        self.folder = folder
        self._test = test
        self._seen: set[tuple[Path, int]] = set()
        self._rows: dict[int, Row] = {}
        self._alive_at = time.monotonic()
        self._was_held = False
        self._activity: list[int] = []

    @property
    def written(self) -> list[Path]:
        """The files that are made of the rows."""
        names = ["evaluation.csv", "evolution.png"]
        names += ["confusion.csv"] if self.confusion is not None else []
        names += ["curves.csv", "curves.png"] if self._rows and self.rows[-1].curves else []
        return [self.folder / name for name in names]

    @property
    def rows(self) -> list[Row]:
        """The rows so far, by iteration."""
        return [self._rows[iteration] for iteration in sorted(self._rows)]

    @property
    def confusion(self) -> Confusion | None:
        """Of the latest model."""
        return self.rows[-1].confusion if self._rows else None

    def evaluate_new(self, progress: Progress = no_progress) -> list[Row]:
        """Evaluate the snapshots that were not there before, and write evaluation.csv."""
        paths = self._new_files()
        if not paths:
            return []
        try:
            warn = None if self._rows else _warn  # once
            rows = evaluate_snapshots(paths, self.test_set(), progress, warn)
        except (OSError, UserError):
            if all(path.exists() for path in paths):
                raise
            return []  # the run is begun afresh just now
        self._rows.update((row.iteration, row) for row in rows)
        write_csv(self.folder / "evaluation.csv", self.rows)
        if self.confusion is not None:
            write_confusion(self.folder / "confusion.csv", self.confusion)
        if self.rows[-1].curves is not None:
            write_curves(self.folder / "curves.csv", self.rows[-1].curves)
        return sorted(rows, key=lambda row: row.iteration)

    def _new_files(self) -> list[Path]:
        if any(not path.exists() for path, _ in self._seen):  # the run was begun afresh
            self._seen.clear()
            self._rows.clear()
        snapshots = sorted((self.folder / "snapshots").glob("model-*.safetensors"))
        final = self.folder / "model.safetensors"
        new = []
        for path in [*snapshots, final]:
            try:
                key = (path, path.stat().st_mtime_ns)
            except FileNotFoundError:  # not there yet, or begun afresh just now
                continue
            if key not in self._seen:
                self._seen.add(key)
                if path != final or not _is_among(final, snapshots):
                    new.append(path)
        return new

    def test_set(self) -> "Spec":
        """The test set asked for, or the one the run was configured with."""
        if self._test is not None:
            return self._test
        config = self.folder / "config.yaml"
        try:
            content = read_yaml(config)
        except FileNotFoundError as missing:
            raise UserError(
                f"{config}: there is no such file; is {self.folder} a run directory? --test STORE "
                "names a test set"
            ) from missing
        data = content.get("data") if isinstance(content, Mapping) else None
        spec = data.get("test") if isinstance(data, Mapping) else None
        if not spec:
            raise UserError(f"{config}: names no test set (data.test); give one with --test STORE")
        if not isinstance(spec, str | Mapping):
            raise UserError(f"{config}: data.test is {spec!r}, neither a path nor a mapping")
        return spec

    def status(self) -> str | None:
        """How the run ended, as far as it has."""
        # Not there yet, or (on a file system without atomic renames) not whole yet: ask again.
        with suppress(OSError, ValueError):
            summary = json.loads((self.folder / "summary.json").read_text())
            return summary.get("status") if isinstance(summary, dict) else None
        return None

    def trainer_is_gone(self) -> bool:
        """Whether nobody has been at work here for a while."""
        from bigsvm.training.run_dir import RunDir

        run_dir = RunDir(self.folder)
        held = run_dir.is_held()
        activity = []
        for path in (run_dir.metrics, run_dir.checkpoints, run_dir.snapshots):
            with suppress(OSError):
                activity.append(path.stat().st_mtime_ns)
        self._was_held = self._was_held or bool(held)
        now = time.monotonic()
        if held or activity != self._activity or not activity:
            self._alive_at, self._activity = now, activity
        patience = SECONDS_AFTER_TRAINER if self._was_held else SECONDS_WITHOUT_TRAINER
        return now - self._alive_at >= patience


def _warn(line: str) -> None:
    print(f"warning: {line}", file=sys.stderr, flush=True)


def _is_among(final: Path, snapshots: Sequence[Path]) -> bool:
    from bigsvm.models.model import load_model

    iteration = load_model(final).about.get("iteration")
    numbers = (path.stem.removeprefix("model-") for path in snapshots)
    return any(number.isdecimal() and int(number) == iteration for number in numbers)


def draw(runs: Mapping[str, Run], changed: Sequence[Run], together: Path | None) -> None:
    """The picture of each run that changed, and the one of all runs where it is asked for."""
    from bigsvm.models.curves import plot_curves
    from bigsvm.models.plots import plot_evolution

    for label, run in runs.items():
        if run in changed:
            plot_evolution(run.folder / "evolution.png", {label: run.rows})
            last = run.rows[-1]
            if last.curves is not None and last.confusion is not None:
                counts, positive = last.confusion.counts, last.confusion.classes[1]
                share = float(counts[1].sum() / counts.sum())
                picture = run.folder / "curves.png"
                plot_curves(picture, last.curves, last.threshold, str(positive), share)
    if together and changed:
        plot_evolution(together, {label: run.rows for label, run in runs.items() if run.rows})


def evaluate_all(runs: Mapping[str, Run], picture: Path | None) -> None:
    """What is there now, and that is it."""
    for run in runs.values():
        if not run.folder.is_dir():
            raise UserError(f"{run.folder}: there is no such run directory; --follow waits for it")
    for label, run in runs.items():
        with show_progress() as progress:
            if not run.evaluate_new(progress):
                raise UserError(
                    f"{run.folder}: has neither snapshots nor a model yet; --follow waits for them"
                )
        print(f"{label}\n{HEADING}", *(row.line() for row in run.rows), sep="\n", flush=True)
        last = run.rows[-1]
        if last.majority is not None and (warning := last.majority.warning(last.accuracy)):
            print(f"warning: the last model is {warning}", flush=True)
        if run.confusion is not None:
            print("", *run.confusion.lines(), sep="\n", flush=True)
        if last.curves is not None and run.confusion is not None:
            print(
                f"F1, AUC and curves are of class {run.confusion.classes[1]!s}; average precision "
                f"{100 * last.curves.average_precision:.2f} %",
                flush=True,
            )
    draw(runs, list(runs.values()), picture)


def follow(runs: Mapping[str, Run], picture: Path | None) -> None:
    """Evaluate snapshots as they appear, until all runs are over or their trainers gone."""
    width = max(map(len, runs)) if len(runs) > 1 else 0
    said: dict[Run, str] = {}

    def say(run: Run, what: str) -> None:
        if said.get(run) != what:
            print(f"{run.folder}: {what}", file=sys.stderr, flush=True)
            said[run] = what

    print(f"{'':{width}}{HEADING}", flush=True)
    while True:
        # The status first: a run that is over by now has written all its snapshots by now.
        gone = [run for run in runs.values() if run.trainer_is_gone()]
        statuses = {run: run.status() for run in runs.values()}
        gone = [run for run in gone if statuses[run] is None]
        changed = []
        for label, run in runs.items():
            for row in run.evaluate_new():
                print(f"{label if width else '':{width}}{row.line()}", flush=True)
                if run not in changed:
                    changed.append(run)
            if statuses[run] in OVER and not run.rows:
                raise UserError(f"{run.folder}: the run is over and has left no model")
            if not run.folder.is_dir():
                say(run, "does not exist yet; waiting for it")
            elif statuses[run] == "interrupted":
                say(run, "the run was interrupted; waiting for it to go on (Ctrl-C ends this)")
            elif not run.rows:
                say(run, "waiting for the first snapshot")
        draw(runs, changed, picture)
        if all(status in OVER or run in gone for run, status in statuses.items()):
            if gone:
                raise TrainerGone(str(gone[0].folder))
            return
        time.sleep(POLL_SECONDS)


def labelled(folders: Sequence[Path], labels: Sequence[str] | None) -> list[str]:
    """A different label for each run: as asked for, else its name, else its path."""
    if labels is not None:
        if len(labels) != len(folders):
            raise UserError(f"--labels: {len(labels)} given for {len(folders)} run directories")
        if len(set(labels)) != len(labels):
            raise UserError("--labels: give each run another one")
        return list(labels)
    if len({folder.resolve() for folder in folders}) != len(folders):
        raise UserError("a run directory is named twice")
    names = [folder.resolve().name for folder in folders]
    return names if len(set(names)) == len(names) else [str(folder) for folder in folders]


EXAMPLES = """writes RUN_DIR/evaluation.csv and RUN_DIR/evolution.png, a line and a point for each
snapshot; RUN_DIR/confusion.csv and, of two classes, the ROC and precision-recall curves
RUN_DIR/curves.csv and RUN_DIR/curves.png, of the latest model

examples:
  python -m bigsvm.evaluate runs/miniboone
  python -m bigsvm.evaluate runs/miniboone --follow            beside a training
  python -m bigsvm.evaluate runs/miniboone --test other.zarr
  python -m bigsvm.evaluate runs/fw runs/mfw --picture both.png --labels "SVM" "sparse SVM"
"""


def parse_arguments(argv: Sequence[str] | None) -> Namespace:
    """Read the command line."""
    parser = cli.Arguments(
        prog="python -m bigsvm.evaluate",
        description="Score every snapshot of a run against a test set, in one pass over it.",
        epilog=EXAMPLES,
        formatter_class=RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("runs", metavar="RUN_DIR", nargs="+", type=Path, help="made by python -m bigsvm.train")
    add("--test", metavar="STORE", help="test set, scaled like the training data: a path or an "
        "address (default: data.test of the run's config)")  # fmt: skip
    add("--follow", action="store_true", help="evaluate snapshots as they appear, until the run "
        "is over")  # fmt: skip
    add("--picture", metavar="FILE.png", type=Path, help="also draw all runs into one picture")
    add("--labels", metavar="NAME", nargs="+", help="of the runs, in pictures and on screen")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `python -m bigsvm.evaluate`."""
    arguments = parse_arguments(argv)
    labels = labelled(arguments.runs, arguments.labels)
    picture = arguments.picture
    if picture and picture.suffix.lower() != ".png":
        raise UserError(f"--picture {picture}: pictures are PNG; name it *.png")
    if picture and not picture.parent.is_dir():
        raise UserError(f"--picture {picture}: there is no folder {picture.parent}")
    runs = {
        label: Run(folder, arguments.test)
        for label, folder in zip(labels, arguments.runs, strict=True)
    }
    from bigsvm.terminal.compiling import notify_compilation

    with notify_compilation():
        (follow if arguments.follow else evaluate_all)(runs, picture)
    written = [path for run in runs.values() for path in run.written]
    print(f"written: {', '.join(map(str, [*written, *([picture] if picture else [])]))}")
    return 0


if __name__ == "__main__":
    sys.exit(cli.run(main))
