"""The report of one or several runs: a self-contained HTML page, made of what is in their folders.

The page's own files are in `page/`. Everything that comes from a run is embedded as JSON, which the
script of the page turns into text, never into HTML.
"""

import csv
import html
import json
import math
from collections.abc import Sequence
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from bigsvm.config.file import flatten, load_config
from bigsvm.core.errors import UserError
from bigsvm.core.messages import format_bytes
from bigsvm.inspection.run import run_facts
from bigsvm.models.evaluation import Majority
from bigsvm.models.model import load_model
from bigsvm.training.evaluation import RunEvaluation, describe
from bigsvm.training.next_step import TrainCommand, next_step
from bigsvm.training.run_dir import RunDir

MAX_POINTS = 1500  # of a line in a figure
METRICS = ("iteration", "seconds", "relative_gap", "objective", "support", "working", "rss")
Facts = dict[str, Any]


class RunReport:
    """What a run directory holds, for the page; files that do not exist yet are left out.

    Parameters
    ----------
    label : str
        The name of the run on the page.
    run : RunEvaluation
    program : str
        How commands are called: "bigsvm " or "python -m bigsvm.".
    """

    def __init__(self, label: str, run: RunEvaluation, program: str) -> None:
        self.run = run
        self._label = label
        self._program = program
        self._dir = RunDir(run.folder)
        self._model: tuple[object, Facts] = (None, {})
        self.problem: str | None = None  # why the snapshots could not be scored

    def evaluate(self) -> None:
        """Score new snapshots as `evaluate` does, if the run has a test set."""
        with suppress(UserError):
            self.run.test_set()
            try:
                self.run.evaluate_new()
                self.problem = None
            except (UserError, OSError) as problem:
                self.problem = f"not scored on the test set: {problem}"

    def data(self) -> Facts:
        """Everything the page shows of the run, ready for JSON."""
        facts = run_facts(self.run.folder)
        summary, metrics = facts["summary"] or {}, self._metrics()
        scores = self._scores(_csv(self.run.folder / "evaluation.csv"), metrics)
        validation = self._scores(_json_lines(self._dir.validation), metrics)
        model = self._model_facts()
        headline, advice, command = self._ending(facts["status"], summary)
        classes = model.get("classes", [])
        reliability = self._reliability()
        sections = {key: facts[key] for key in ("data", "model", "solver")}
        return {
            "label": self._label,
            "title": model.get("title", "there is no model yet"),
            "status": facts["status"],
            "headline": headline,
            "advice": advice,
            "command": command,
            "warnings": self._warnings(summary),
            "majority": summary.get("majority", {}).get("share"),
            "metrics": metrics,
            "scores": scores,
            "validation": validation,
            "confusion": self._confusion(),
            "curves": self._curves(scores, classes),
            "calibration": reliability
            and {
                key: [_finite(part[key]) for part in reliability["curve"]]
                for key in ("probability", "share", "rows")
            },
            "memory_limit": (facts["solver"] or {}).get("memory_limit"),
            "results": _results(facts, summary, model, classes, scores)
            | {name: _shown(reliability[key]) for name, key in _RELIABILITY.items() if reliability},
            "work": _work(facts, summary),
            "config": {key: str(v) for key, v in flatten(sections).items()},
            "versions": {name: str(v) for name, v in summary.get("versions", {}).items()},
        }

    def _metrics(self) -> Facts:
        """The columns of metrics.jsonl, thinned out."""
        rows = _json_lines(self._dir.metrics)
        kept = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), MAX_POINTS)).astype(int))
        return {key: [_finite(rows[k].get(key)) for k in kept] for key in METRICS}

    def _scores(self, rows: Sequence[Facts], metrics: Facts) -> Facts | None:
        """The columns of the scores of snapshots, and the training time of each row."""
        if not rows:
            return None
        columns: Facts = {key: [_finite(row.get(key)) for row in rows] for key in rows[0]}
        if metrics["iteration"]:
            known = [0, *metrics["iteration"]], [0, *metrics["seconds"]]
            columns["seconds"] = np.interp(columns["iteration"], *known).round(3).tolist()
        return columns

    def _confusion(self) -> Facts | None:
        rows = _csv(self.run.folder / "confusion.csv")
        if not rows:
            return None
        names = list(rows[0])[1:]
        return {"classes": names, "counts": [[int(row[name]) for name in names] for row in rows]}

    def _curves(self, scores: Facts | None, classes: list[str]) -> Facts | None:
        """The columns of curves.csv, and where the model's threshold lies on them."""
        rows = _csv(self.run.folder / "curves.csv")
        if not rows or scores is None or len(classes) != 2:
            return None
        curves: Facts = {key: [_finite(row.get(key)) for row in rows] for key in rows[0]}
        threshold = scores.get("threshold", [0.0])[-1] or 0.0
        values = [math.inf if v is None else v for v in curves.pop("threshold")]
        at = max(0, int(np.searchsorted(-np.asarray(values), -threshold, "right")) - 1)
        found = [curves[key][at] for key in ("false_positive_rate", "recall", "precision")]
        shares = {"roc_at": found[:2], "pr_at": found[1:], "base": curves["precision"][-1]}
        return curves | shares | {"positive": classes[1]}

    def _reliability(self) -> Facts | None:
        """calibration.json, which a calibrated model has."""
        with suppress(OSError, ValueError, LookupError, TypeError):
            found = json.loads((self.run.folder / "calibration.json").read_text())
            return found if {"probability", "share", "rows"} <= found["curve"][0].keys() else None
        return None

    def _model_facts(self) -> Facts:
        """What the newest model records; read again only when the file has changed."""
        newest = [self._dir.model, *sorted(self._dir.snapshots.glob("model-*.safetensors"))[::-1]]
        for path in newest:
            with suppress(OSError, UserError):
                key = path, path.stat().st_mtime_ns
                if key != self._model[0]:
                    model = load_model(path)
                    self._model = (
                        key,
                        {
                            "title": describe(model),
                            "features": model.n_features,
                            "classes": [str(label) for label in model.classes],
                            "threshold": model.threshold,
                            "n_train": model.about.get("n_train"),
                        },
                    )
                return self._model[1]
        return {}

    def _ending(self, status: str, summary: Facts) -> tuple[str, str | None, str | None]:
        """How the run ended, what to do next, and the command that does it."""
        command = TrainCommand(self._program, self._dir.config, [], self.run.folder)
        if not summary:
            waiting = {"not begun": "the run has not begun", "running": "the training is running"}
            if status in waiting:
                return waiting[status], None, None
            return f"{status}: no summary was written", "resume the run", command.line()
        headline = (
            f"{status} after {summary.get('iterations', 0):,} iterations and "
            f"{summary.get('train_seconds', 0):,.1f} s"
        )
        try:
            solver = load_config(self._dir.config).solver
            line = next_step({"status": status, **summary}, command, self.run.folder, solver, 0)
        except (UserError, KeyError):  # a config or summary of another version
            return headline, None, None
        text, _, call = line.rpartition(": ")
        return headline, text, call

    def _warnings(self, summary: Facts) -> list[str]:
        found = [] if self.problem is None else [self.problem]
        with suppress(KeyError, TypeError):
            scores = summary["accuracy"], summary["balanced_accuracy"]
            warning = Majority(**summary["majority"]).warning(*scores)
            found += [f"The model is {warning}."] if warning else []
        return found


def _results(
    facts: Facts, summary: Facts, model: Facts, classes: list[str], scores: Facts | None
) -> dict[str, str]:
    """The rows of the first table."""
    last = facts["last_metrics"] or {}
    final = {key: column[-1] for key, column in (scores or {}).items()} | summary
    known = {
        "training rows": model.get("n_train"),
        "features": model.get("features"),
        "classes": ", ".join(classes[:20]) + (", ..." if len(classes) > 20 else ""),
        "iterations": summary.get("iterations", last.get("iteration")),
        "passes over the data": summary.get("passes", last.get("pass")),
        "training time (s)": summary.get("train_seconds", last.get("seconds")),
        "relative gap": summary.get("relative_gap", last.get("relative_gap")),
        "recomputed relative gap": summary.get("true_relative_gap"),
        "gap": summary.get("gap", last.get("gap")),
        "drift of the gradient": summary.get("drift"),
        "objective": summary.get("objective", last.get("objective")),
        "support vectors": summary.get("n_support", last.get("support")),
        "working set": summary.get("n_working", last.get("working")),
        "threshold": model.get("threshold"),
        **{name: _percent(final.get(key)) for name, key in _SCORES.items()},
    }
    return {name: _shown(value) for name, value in known.items() if value not in (None, "")}


_RELIABILITY = {
    "Brier score": "brier_score",
    "log loss": "log_loss",
    "expected calibration error": "expected_calibration_error",
}
_SCORES = {
    "test accuracy": "accuracy",
    "balanced accuracy": "balanced_accuracy",
    "F1": "f1",
    "AUC": "auc",
}


def _work(facts: Facts, summary: Facts) -> dict[str, str]:
    """The kernel values computed, and the memory."""
    limit, peak = (facts["solver"] or {}).get("memory_limit"), summary.get("peak_rss_bytes")
    work = summary.get("work")
    kept = {name: facts[name] for name in ("snapshots", "checkpoints") if facts[name]["count"]}
    known = {
        "kernel values": summary.get("kernel_values"),
        "per training row and support vector": work,
        "peak resident memory": None if peak is None else format_bytes(peak),
        "memory limit": None if limit is None else format_bytes(limit),
        **{n: f"{_shown(k['count'])}, {format_bytes(k['bytes'])}" for n, k in kept.items()},
    }
    return {name: _shown(value) for name, value in known.items() if value is not None}


def _shown(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _percent(value: Any) -> str | None:
    return f"{100 * value:.2f} %" if isinstance(value, int | float) else None


def _finite(value: Any) -> float | None:
    """A number for JSON: None for text that is no number, for nan and for infinity."""
    with suppress(TypeError, ValueError):
        number = float(value)
        if math.isfinite(number):
            return int(number) if number.is_integer() else number
    return None


def _json_lines(path: Path) -> list[Facts]:
    """The reports in a file that may be growing: a line that is not complete is left out."""
    rows = []
    with suppress(OSError), path.open(errors="replace") as file:
        for line in file:
            with suppress(ValueError):
                row = json.loads(line)
                if isinstance(row, dict) and isinstance(row.get("iteration"), int):
                    rows.append(row)
    return rows


def _csv(path: Path) -> list[dict[str, str]]:
    """The rows of a file that `evaluate` writes; none if it is not there, or is damaged."""
    with suppress(OSError, csv.Error, UnicodeDecodeError), path.open(newline="") as file:
        return [row for row in csv.DictReader(file) if None not in row]
    return []


def report_data(runs: Sequence[RunReport], made: str, live: bool = False) -> str:
    """The data of a page as JSON that is safe inside a script element."""
    found = [run.data() for run in runs]
    title = f"bigsvm: {', '.join(run['label'] for run in found)}"
    content = {"title": title, "made": made, "live": live, "runs": found}
    text = json.dumps(content, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def page(data: str) -> str:
    """The page that shows `report_data`."""
    about = json.loads(data)
    parts = {
        "CONNECT": "'self'" if about["live"] else "'none'",
        "TITLE": html.escape(about["title"]),
        "STYLE": _part("report.css"),
        "SCRIPT": _part("report.js"),
        "DATA": data,
    }
    before, *pieces = _part("report.html").split("@@")
    # Alternating names and text, so that nothing that was inserted is replaced again.
    return before + "".join(parts[piece] if k % 2 == 0 else piece for k, piece in enumerate(pieces))


def _part(name: str) -> str:
    return (files("bigsvm.inspection") / "page" / name).read_text("utf-8").strip()
