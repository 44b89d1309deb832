"""The facts about the directory of a run or of a tuning."""

import csv
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from bigsvm.core.errors import UserError
from bigsvm.core.yaml_dialect import read_yaml
from bigsvm.training.run_dir import RunDir

_NUMBERED = {"snapshots": "model-*.safetensors", "checkpoints": "checkpoint-*.safetensors"}


def is_run(path: Path) -> bool:
    """Whether a folder looks like a run directory."""
    run = RunDir(path)
    return run.config.is_file() or run.model.is_file() or run.checkpoints.is_dir()


def run_facts(path: Path) -> dict[str, Any]:
    """The facts, ready for JSON; None for what does not exist yet."""
    run = RunDir(path)
    config, summary = _yaml(run.config), _json(run.summary)
    if isinstance(summary.get("classes"), list):  # only for more than two
        summary["classes"] = _by_label(summary["classes"])
    return {
        "run": str(path),
        "status": summary.get("status") or _without_summary(run),
        "data": _section(config, "data"),
        "model": _section(config, "model"),
        "solver": _section(config, "solver"),
        "summary": {key: value for key, value in summary.items() if key != "status"} or None,
        "last_metrics": _last_metrics(run.metrics),
        "final_model": str(run.model) if run.model.is_file() else None,
        "snapshots": _numbered(run.snapshots),
        "checkpoints": _numbered(run.checkpoints),
    }


def is_tuning(path: Path) -> bool:
    """Whether a folder looks like the directory of a tuning."""
    return (path / "tune.yaml").is_file()


def tuning_facts(path: Path) -> dict[str, Any]:
    """The facts of a tuning, ready for JSON; None for what does not exist yet."""
    config, best = _yaml(path / "tune.yaml"), _yaml(path / "best.yaml")
    rows: list[dict[str, str]] = []
    with suppress(OSError, UnicodeDecodeError, csv.Error), (path / "tune.csv").open() as file:
        rows = list(csv.DictReader(file))
    points = [file for file in (path / "points").glob("*.safetensors") if file.is_file()]
    ended = "finished" if rows and best else _without_summary(RunDir(path))
    return {
        "tuning": str(path),
        "status": ended,
        "data": _section(config, "data"),
        "tune": _section(config, "tune"),
        "finished_folds": {"count": len(points), "bytes": sum(p.stat().st_size for p in points)},
        "grid_points": len(rows) or None,
        "best_model": _section(best, "model"),
        "best_config": str(path / "best.yaml") if best else None,
    }


def _by_label(classes: list[Any]) -> dict[str, Any]:
    facts = [dict(of_class) for of_class in classes if isinstance(of_class, Mapping)]
    return {str(of_class.pop("label", None)): of_class for of_class in facts}


def _without_summary(run: RunDir) -> str:
    begun = (run.path.glob("points/*"), run.checkpoints.glob("checkpoint-*"))
    if not (run.metrics.exists() or any(any(files) for files in begun)):
        return "not begun"
    return {True: "running", False: "cut off", None: "running, or cut off"}[run.is_held()]


def _section(config: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    section = config.get(name)
    if not isinstance(section, Mapping):
        return None
    return {key: value for key, value in section.items() if value is not None}


def _numbered(folder: Path) -> dict[str, Any]:
    """The number, the iterations and the total size of snapshots or checkpoints."""
    files = sorted(path for path in folder.glob(_NUMBERED[folder.name]) if path.is_file())
    iterations = [int(n) for p in files if (n := p.stem.split("-")[-1]).isdecimal()]
    return {
        "count": len(files),
        "iterations": iterations,
        "bytes": sum(path.stat().st_size for path in files),
    }


def _last_metrics(path: Path) -> dict[str, Any] | None:
    """The last complete line; the very last may be cut off."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            file.seek(max(0, size - 2**16))
            tail = file.read().splitlines()
    except OSError:
        return None
    for line in reversed(tail):
        with suppress(ValueError):
            found = json.loads(line)
            if isinstance(found, dict):
                return found
    return None


def _json(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        content = json.loads(path.read_text())
        return content if isinstance(content, dict) else {}
    return {}


def _yaml(path: Path) -> dict[str, Any]:
    with suppress(OSError, UserError):
        content = read_yaml(path)
        return content if isinstance(content, dict) else {}
    return {}
