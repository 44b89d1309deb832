"""The scores of a run's snapshots for `evaluate`, once or while the run is trained."""

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from bigsvm.core.errors import TrainerGone, UserError
from bigsvm.core.messages import Progress, no_progress
from bigsvm.core.yaml_dialect import read_yaml
from bigsvm.models.evaluation import (
    HEADING,
    Confusion,
    Row,
    evaluate_snapshots,
    write_confusion,
    write_evaluation,
    write_reliability,
)
from bigsvm.models.model import Model, load_model
from bigsvm.models.scores import write_curves
from bigsvm.models.scoring import Spec
from bigsvm.terminal import logs
from bigsvm.terminal.progress import show_progress
from bigsvm.training.run_dir import RunDir

ENDED = (
    "converged",
    "max_iterations",
    "time_limit",
    "stopped_early",
)  # an interrupted run may be resumed
POLL_SECONDS = 1.0
# How long to wait for a run without a summary whose lock is free: a short time once its trainer was
# seen, else a long time, since the trainer may be about to start, or its lock on another machine
# may not be visible here.
SECONDS_AFTER_TRAINER = 10.0
SECONDS_WITHOUT_TRAINER = 600.0


class RunEvaluation:
    """A run directory, and the scores of its snapshots so far."""

    def __init__(self, folder: Path, test: Spec | None = None) -> None:
        self.folder = folder
        self._test = test
        self._seen: set[tuple[Path, int]] = set()
        self._rows: dict[int, Row] = {}
        self._alive_at = time.monotonic()
        self._was_held = False
        self._activity: list[int] = []

    @property
    def written(self) -> list[Path]:
        """The files written."""
        names = ["evaluation.csv", "evolution.png"]
        names += ["confusion.csv"] if self.confusion is not None else []
        names += ["curves.csv", "curves.png"] if self._rows and self.rows[-1].curves else []
        if self._rows and self.rows[-1].reliability:
            names += ["calibration.json", "calibration.png"]
        return [self.folder / name for name in names]

    @property
    def rows(self) -> list[Row]:
        """The scores so far, in the order of the iterations."""
        return [self._rows[iteration] for iteration in sorted(self._rows)]

    @property
    def confusion(self) -> Confusion | None:
        """The confusion matrix of the latest model."""
        return self.rows[-1].confusion if self._rows else None

    def evaluate_new(self, progress: Progress = no_progress) -> list[Row]:
        """Score new snapshots, and update evaluation.csv."""
        paths = self._new_files()
        if not paths:
            return []
        try:
            warn = None if self._rows else _warn  # once
            rows = evaluate_snapshots(paths, self.test_set(), progress, warn)
        except (OSError, UserError):
            if all(path.exists() for path in paths):
                raise
            return []  # the run is being started over
        self._rows.update((row.iteration, row) for row in rows)
        write_evaluation(self.folder / "evaluation.csv", self.rows)
        if self.confusion is not None:
            write_confusion(self.folder / "confusion.csv", self.confusion)
        if self.rows[-1].curves is not None:
            write_curves(self.folder / "curves.csv", self.rows[-1].curves)
        if self.rows[-1].reliability is not None:
            write_reliability(self.folder / "calibration.json", self.rows[-1].reliability)
        return sorted(rows, key=lambda row: row.iteration)

    def seconds(self) -> list[float] | None:
        """The training time of each row, between the reports in metrics.jsonl; None without any."""
        iterations, seconds = [0.0], [0.0]
        with suppress(OSError), RunDir(self.folder).metrics.open(errors="replace") as file:
            for line in file:
                with suppress(ValueError, TypeError, KeyError):  # a line that is being written
                    report = json.loads(line)
                    at = float(report["iteration"]), float(report["seconds"])
                    if at[0] > iterations[-1]:
                        iterations.append(at[0])
                        seconds.append(at[1])
        if len(iterations) == 1:
            return None
        return [float(np.interp(row.iteration, iterations, seconds)) for row in self.rows]

    def title(self) -> str:
        """What was trained on what, by the latest model."""
        try:
            return describe(load_model(max(self._seen, key=lambda seen: seen[1])[0]))
        except (OSError, UserError):  # started over meanwhile
            return "-"

    def _new_files(self) -> list[Path]:
        if any(not path.exists() for path, _ in self._seen):  # the run was started over
            self._seen.clear()
            self._rows.clear()
        snapshots = sorted((self.folder / "snapshots").glob("model-*.safetensors"))
        final = self.folder / "model.safetensors"
        new = []
        for path in [*snapshots, final]:
            try:
                key = (path, path.stat().st_mtime_ns)
            except FileNotFoundError:  # not written yet, or the run is just being started over
                continue
            if key not in self._seen:
                self._seen.add(key)
                if path != final or _is_new(final, snapshots):
                    new.append(path)
        return new

    def test_set(self) -> Spec:
        """The test set of the command line, or else of the run's config."""
        if self._test is not None:
            return self._test
        config = self.folder / "config.yaml"
        try:
            content = read_yaml(config)
        except FileNotFoundError as missing:
            raise UserError(
                f"{config}: no such file; is {self.folder} a run directory? --test STORE "
                "names a test set"
            ) from missing
        data = content.get("data") if isinstance(content, Mapping) else None
        spec = data.get("test") if isinstance(data, Mapping) else None
        if not spec:
            raise UserError(f"{config}: has no test set (data.test); name one with --test STORE")
        if not isinstance(spec, str | Mapping):
            raise UserError(f"{config}: data.test is {spec!r}, neither a path nor a mapping")
        return spec

    def status(self) -> str | None:
        """The status in summary.json; None while there is no summary."""
        # Without atomic renames, the file may be incomplete for a moment.
        with suppress(OSError, ValueError):
            summary = json.loads((self.folder / "summary.json").read_text())
            return summary.get("status") if isinstance(summary, dict) else None
        return None

    def trainer_is_gone(self) -> bool:
        """Whether there has been no sign of a trainer for a while."""
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


def describe(model: Model) -> str:
    """What was trained on what, in one line."""
    kernel = dict(model.kernel)
    name = kernel.pop("name")
    shown = {"rbf": ("gamma",), "laplacian": ("gamma",), "poly": ("gamma", "coef0", "degree")}
    rates = [f"{key} {kernel[key]:.4g}" for key in shown.get(name, ()) if key in kernel]
    about = model.about
    facts = [f"{name} kernel", *rates]
    facts += [f"C {about['C']:.4g}"] if isinstance(about.get("C"), int | float) else []
    facts += [str(about["algorithm"])] if "algorithm" in about else []
    return f"{about.get('source') or 'data'}, {', '.join(facts)}"


def _warn(line: str) -> None:
    logs.log(f"warning: {line}")


def _is_new(final: Path, snapshots: Sequence[Path]) -> bool:
    """Whether the final model differs from the snapshot of its iteration, or is calibrated."""
    model = load_model(final)
    numbers = [path.stem.removeprefix("model-") for path in snapshots]
    at = [int(number) for number in numbers if number.isdecimal()]
    return model.calibration is not None or model.about.get("iteration") not in at


def plot(
    runs: Mapping[str, RunEvaluation], changed: Sequence[RunEvaluation], together: Path | None
) -> None:
    """Plot each run that changed, and all runs together if a path is given for that."""
    from bigsvm.models import plots  # matplotlib takes a second to import

    for label, run in runs.items():
        if run in changed:
            made = {label: plots.Evolution(run.rows, run.seconds())}
            plots.plot_evolution(run.folder / "evolution.png", made, f"{label}: {run.title()}")
            last = run.rows[-1]
            if last.curves is not None and last.confusion is not None:
                counts, positive = last.confusion.counts, last.confusion.classes[1]
                share = float(counts[1].sum() / counts.sum())
                picture = run.folder / "curves.png"
                plots.plot_curves(picture, last.curves, last.threshold, str(positive), share)
            if last.reliability is not None:
                of = "the most probable class" if last.curves is None else f"class {positive}"
                plots.plot_calibration(run.folder / "calibration.png", last.reliability, of)
    if together and changed:
        every = {
            label: plots.Evolution(run.rows, run.seconds())
            for label, run in runs.items()
            if run.rows
        }
        plots.plot_evolution(together, every)


def evaluate_all(runs: Mapping[str, RunEvaluation], picture: Path | None) -> None:
    """Score the snapshots that exist now."""
    for run in runs.values():
        if not run.folder.is_dir():
            raise UserError(f"{run.folder}: no such run directory; --follow waits for it")
    for label, run in runs.items():
        with show_progress() as progress:
            if not run.evaluate_new(progress):
                raise UserError(
                    f"{run.folder}: has no snapshots and no model yet; --follow waits for them"
                )
        _print_scores(label, run.rows)
    plot(runs, list(runs.values()), picture)


def evaluate_model(path: Path, test: Spec) -> None:
    """Score one model; its scores are only printed."""
    with show_progress() as progress:
        rows = evaluate_snapshots([path], test, progress, _warn)
    _print_scores(str(path), rows)


def _print_scores(label: str, rows: Sequence[Row]) -> None:
    """Print a line for each model; for the last one also confusion, curves and probabilities."""
    print(f"{label}\n{HEADING}", *(row.line() for row in rows), sep="\n", flush=True)
    last = rows[-1]
    scores = last.accuracy, last.balanced_accuracy
    if last.majority is not None and (warning := last.majority.warning(*scores)):
        print(f"warning: the last model is {warning}", flush=True)
    if last.confusion is not None:
        print("", *last.confusion.lines(), sep="\n", flush=True)
    if last.curves is not None and last.confusion is not None:
        print(
            f"F1, AUC and curves are of class {last.confusion.classes[1]!s}; average precision "
            f"{100 * last.curves.average_precision:.2f} %",
            flush=True,
        )
    if (found := last.reliability) is not None:
        print(
            f"probabilities: Brier score {found.brier_score:.4f}, "
            f"log loss {found.log_loss:.4f}, expected calibration error "
            f"{100 * found.expected_calibration_error:.2f} %",
            flush=True,
        )


def follow(runs: Mapping[str, RunEvaluation], picture: Path | None) -> None:
    """Score snapshots as they appear, until all runs have ended or lost their trainers."""
    width = max(map(len, runs)) if len(runs) > 1 else 0
    logged: dict[RunEvaluation, str] = {}

    def log(run: RunEvaluation, what: str) -> None:
        if logged.get(run) != what:
            logs.log(f"{run.folder}: {what}")
            logged[run] = what

    print(f"{'':{width}}{HEADING}", flush=True)
    while True:
        # Read the status first: a run that has ended has written all its snapshots.
        gone = [run for run in runs.values() if run.trainer_is_gone()]
        statuses = {run: run.status() for run in runs.values()}
        gone = [run for run in gone if statuses[run] is None]
        changed = []
        for label, run in runs.items():
            for row in run.evaluate_new():
                print(f"{label if width else '':{width}}{row.line()}", flush=True)
                if run not in changed:
                    changed.append(run)
            if statuses[run] in ENDED and not run.rows:
                raise UserError(f"{run.folder}: the run ended without a model")
            if not run.folder.is_dir():
                log(run, "does not exist yet; waiting for it")
            elif statuses[run] == "interrupted":
                log(run, "the run was interrupted; waiting for it to resume (Ctrl-C stops waiting)")
            elif not run.rows:
                log(run, "waiting for the first snapshot")
        plot(runs, changed, picture)
        if all(status in ENDED or run in gone for run, status in statuses.items()):
            if gone:
                raise TrainerGone(str(gone[0].folder))
            return
        time.sleep(POLL_SECONDS)
