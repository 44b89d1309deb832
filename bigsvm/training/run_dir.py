"""The run directory: its files, written atomically, and the lock against a second trainer."""

import fcntl
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bigsvm.core.errors import DISK_FULL, UserError
from bigsvm.files.atomic import (
    atomic_write,
    open_no_symlink,
    remove_stale_temporaries,
    write_text,
)
from bigsvm.terminal.logs import LOGGER

SHARED_LOCK_SECONDS = 0.5


# Written by `evaluate`, `report` and `run.log_to`.
EVALUATION_FILES = (
    "evaluation.csv",
    "confusion.csv",
    "curves.csv",
    "curves.png",
    "calibration.json",
    "calibration.png",
    "evolution.png",
    "report.html",
    "mlflow.json",
)


class RunDir:
    """The paths and small files of a run; the README describes each.

    Attributes
    ----------
    last_reported : int
        The last iteration in metrics.jsonl when the run began; may be before the one resumed at.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.metrics = path / "metrics.jsonl"
        self.snapshots = path / "snapshots"
        self.checkpoints = path / "checkpoints"
        self.model = path / "model.safetensors"
        self.best = path / "best.safetensors"  # with validation rows only, as is the next one
        self.validation = path / "validation.jsonl"
        self.summary = path / "summary.json"
        self.last_reported = 0
        self.folders: tuple[Path, ...] = (self.snapshots, self.checkpoints)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Create the directory if needed, and lock it against other trainers.

        The system releases the lock when the process ends, however it ends.
        """
        folders = (*self.folders, self.path, *self.path.parents)
        new = [folder for folder in folders if not folder.exists()]
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDONLY)
        except OSError as problem:
            if problem.errno in DISK_FULL:
                raise
            reason = problem.strerror
            raise UserError(f"{self.path}: cannot be a run directory ({reason})") from problem
        try:
            try:
                _lock(descriptor)
            except BlockingIOError:
                raise UserError(
                    f"{self.path}: another trainer uses this run directory; wait for it, "
                    "or use another --run-dir"
                ) from None
            except OSError:
                LOGGER.warning(
                    "%s: this file system does not support locks; do not start a second trainer "
                    "here",
                    self.path,
                )
            if not os.access(self.path, os.W_OK):
                raise UserError(f"{self.path}: the run directory is not writable")
            remove_stale_temporaries(self.path)
            for folder in self.folders:
                folder.mkdir(exist_ok=True)
                remove_stale_temporaries(folder)
            yield
        except UserError:
            for folder in new:  # an error leaves nothing behind, not even an empty folder
                with suppress(OSError):
                    folder.rmdir()
            raise
        finally:
            os.close(descriptor)

    def is_held(self) -> bool | None:
        """Whether a trainer holds the lock; None if that is unknown."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY)
        except OSError:
            return None
        try:
            # A shared lock, for an instant: a trainer that starts now retries.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return None
        finally:
            os.close(descriptor)
        return False

    def begin(self, config: str, iteration: int) -> None:
        """Prepare to start at `iteration`: delete the summary and later metrics."""
        self.summary.unlink(missing_ok=True)
        write_text(self.config, config)
        self._rewind_metrics(iteration)

    def clear(self) -> None:
        """Delete the files of an earlier run, and nothing else."""
        # Checkpoints first: if this is interrupted, the remains must not look resumable.
        for old in self.checkpoints.glob("checkpoint-*.safetensors"):
            old.unlink()
        for old in self.snapshots.glob("model-*.safetensors"):
            old.unlink()
        for name in EVALUATION_FILES:
            (self.path / name).unlink(missing_ok=True)
        for file in (self.metrics, self.validation, self.model, self.best, self.summary):
            file.unlink(missing_ok=True)

    def snapshot_path(self, iteration: int) -> Path:
        """The path of the snapshot of an iteration."""
        return self.snapshots / f"model-{iteration:08d}.safetensors"

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Write summary.json, which records how the run ended."""
        write_text(self.summary, json.dumps(summary, indent=2) + "\n")

    def append_metrics(self, report: dict[str, Any]) -> None:
        """Append a line to metrics.jsonl."""
        with open_no_symlink(self.metrics, "a") as file:
            file.write(json.dumps(report) + "\n")

    def _rewind_metrics(self, iteration: int) -> None:
        """Delete reports after `iteration`, which the resumed run writes again."""
        self.last_reported = 0
        if not self.metrics.exists():
            return
        with (
            self.metrics.open(errors="replace") as old,
            atomic_write(self.metrics) as temporary,
            temporary.open("w") as new,
        ):
            for line in old:
                try:
                    reported = int(json.loads(line)["iteration"])
                except (ValueError, TypeError, KeyError):
                    continue  # cut off when the run was killed
                if reported <= iteration:
                    new.write(line.rstrip("\n") + "\n")
                    self.last_reported = reported


def _lock(descriptor: int) -> None:
    """Lock exclusively; retries for a moment, while `is_held` of another process has the lock."""
    deadline = time.monotonic() + SHARED_LOCK_SECONDS
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(SHARED_LOCK_SECONDS / 20)


def run_labels(folders: Sequence[Path], labels: Sequence[str] | None) -> list[str]:
    """A unique label for each run: as given, else its name, else its path."""
    if labels is not None:
        if len(labels) != len(folders):
            raise UserError(f"--labels: {len(labels)} given for {len(folders)} run directories")
        if len(set(labels)) != len(labels):
            raise UserError("--labels: the labels must differ")
        return list(labels)
    if len({folder.resolve() for folder in folders}) != len(folders):
        raise UserError("a run directory is named twice")
    names = [folder.resolve().name for folder in folders]
    return names if len(set(names)) == len(names) else [str(folder) for folder in folders]
