"""Copies the reports of a run to TensorBoard and MLflow, in a separate process.

The process follows metrics.jsonl and validation.jsonl, at a low priority, until its standard input
is closed; it therefore also ends if the trainer is killed. Its failures, and those of the server it
writes to, do not affect the trainer.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from select import select
from typing import Any, Protocol

from bigsvm.config.file import flatten
from bigsvm.core.errors import UserError
from bigsvm.core.messages import one_line
from bigsvm.core.yaml_dialect import read_yaml

POLL_SECONDS = 1.0
SECONDS_TO_FINISH = 60.0
_FILES = {"metrics.jsonl": "", "validation.jsonl": "validation/"}
_NO_METRICS = {"iteration", "final", "rows"}


def check_trackers(names: Sequence[str]) -> None:
    """Raise a UserError if a library that `run.log_to` needs is not installed."""
    for name in names:
        if find_spec(name) is None:
            raise UserError(
                f"run.log_to = {name}: {name} is not installed; pip install 'bigsvm[{name}]'"
            )


@contextmanager
def track_run(folder: Path, names: Sequence[str], impatient: Callable[[], bool]) -> Iterator[None]:
    """Inside the block, copy the reports of a run directory; at its end, wait for the last ones.

    Parameters
    ----------
    folder : Path
    names : sequence of {"tensorboard", "mlflow"}
    impatient : callable
        Whether to leave without waiting; the process then ends by itself.
    """
    if not names:
        yield
        return
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "bigsvm.training.trackers", str(folder.absolute()), *names],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            cwd=Path(__file__).parents[2],  # where -m finds this package
            start_new_session=True,  # Ctrl-C is for the trainer
        )
    except OSError as failure:
        print(f"warning: run.log_to: cannot be started: {failure.strerror}", file=sys.stderr)
        yield
        return
    assert process.stdin is not None
    try:
        yield
    finally:
        process.stdin.close()
        if not impatient():
            with suppress(subprocess.TimeoutExpired):
                process.wait(SECONDS_TO_FINISH)


class Tracker(Protocol):
    """Where reports are copied to."""

    def add(self, iteration: int, values: dict[str, float]) -> None:
        """Add the values of one report."""

    def close(self, summary: dict[str, Any]) -> None:
        """Finish; with the summary of the run if it has one."""


class TensorBoard:
    """Event files in RUN_DIR/tensorboard, rewritten by every process that works on the run.

    They must not contain reports that a resumed run has discarded.
    """

    def __init__(self, folder: Path) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        shutil.rmtree(folder / "tensorboard", ignore_errors=True)
        self._writer = EventFileWriter(str(folder / "tensorboard"))

    def add(self, iteration: int, values: dict[str, float]) -> None:
        """Add the values of one report."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        found = [Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
        event = Event(wall_time=time.time(), step=iteration, summary=Summary(value=found))
        self._writer.add_event(event)

    def close(self, summary: dict[str, Any]) -> None:
        """Flush the file."""
        self._writer.close()


class MLflow:
    """A run on the server of MLFLOW_TRACKING_URI, or else in RUN_DIR/mlruns.

    Its id is kept in RUN_DIR/mlflow.json, so that a resumed run continues it.
    """

    def __init__(self, folder: Path) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        from mlflow import MlflowClient

        address = os.environ.get("MLFLOW_TRACKING_URI") or (folder / "mlruns").as_uri()
        self._client = MlflowClient(tracking_uri=address)
        self._logged: dict[str, int] = {}
        record = folder / "mlflow.json"
        with suppress(OSError, ValueError, KeyError, TypeError):
            known = json.loads(record.read_text())
            if known["tracking_uri"] == address:
                self._run = str(known["run_id"])
                self._client.update_run(self._run, status="RUNNING")
                for key in self._client.get_run(self._run).data.metrics:
                    history = self._client.get_metric_history(self._run, key)
                    self._logged[key] = max(value.step for value in history)
                return
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "bigsvm")
        found = self._client.get_experiment_by_name(name)
        experiment = found.experiment_id if found else self._client.create_experiment(name)
        self._run = self._client.create_run(experiment, run_name=folder.name).info.run_id
        for key, value in flatten(read_yaml(folder / "config.yaml")).items():
            self._client.log_param(self._run, key, str(value)[:500])
        record.write_text(json.dumps({"tracking_uri": address, "run_id": self._run}) + "\n")

    def add(self, iteration: int, values: dict[str, float]) -> None:
        """Add the values of one report, unless an earlier process has added them."""
        for key, value in values.items():
            if iteration > self._logged.get(key, -1):
                self._client.log_metric(self._run, key, value, step=iteration)

    def close(self, summary: dict[str, Any]) -> None:
        """Add the results, and end the run."""
        status = str(summary.get("status", "cut off"))
        for key, value in summary.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                self._client.log_metric(
                    self._run, f"summary/{key}", value, step=int(summary.get("iterations", 0))
                )
        self._client.set_tag(self._run, "status", status)
        ended = "KILLED" if status in ("interrupted", "cut off") else "FINISHED"
        self._client.set_terminated(self._run, ended)


class _Reports:
    """The complete lines of a file that grows."""

    def __init__(self, path: Path, prefix: str) -> None:
        self._path, self._prefix, self._offset = path, prefix, 0

    def new(self) -> Iterator[tuple[int, dict[str, float]]]:
        with suppress(OSError), self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                with suppress(ValueError, KeyError, TypeError, AttributeError):
                    report = json.loads(line)
                    yield (
                        int(report["iteration"]),
                        {
                            self._prefix + key: float(value)
                            for key, value in report.items()
                            if key not in _NO_METRICS and isinstance(value, int | float)
                        },
                    )


def follow(folder: Path, names: Sequence[str], ended: Callable[[float], bool]) -> None:
    """Copy reports to trackers until `ended(seconds to wait)`, then the last of them.

    A tracker that fails is dropped with one line; the others continue.
    """
    kinds: dict[str, Callable[[Path], Tracker]] = {"tensorboard": TensorBoard, "mlflow": MLflow}
    trackers: dict[str, Tracker] = {}

    def attempt(name: str, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except Exception as failure:  # of a foreign library or server, of any type
            trackers.pop(name, None)
            print(f"warning: run.log_to: {name} stopped: {one_line(failure)}", file=sys.stderr)
            return None

    for name in names:
        tracker = attempt(name, lambda name=name: kinds[name](folder))  # type: ignore[misc]
        if tracker is not None:
            trackers[name] = tracker
    files = [_Reports(folder / name, prefix) for name, prefix in _FILES.items()]
    last = False
    while trackers:
        for iteration, values in (report for file in files for report in file.new()):
            for name, tracker in list(trackers.items()):
                attempt(name, lambda t=tracker, i=iteration, v=values: t.add(i, v))  # type: ignore[misc]
        if last:
            break
        last = ended(POLL_SECONDS)
    summary: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        summary = json.loads((folder / "summary.json").read_text())
    for name, tracker in list(trackers.items()):
        attempt(name, lambda t=tracker: t.close(summary))  # type: ignore[misc]


def main() -> None:
    """The process started by `track_run`: arguments are the run directory and the trackers."""
    os.nice(10)
    folder, *names = sys.argv[1:]
    follow(Path(folder), names, lambda seconds: bool(select([sys.stdin], [], [], seconds)[0]))


if __name__ == "__main__":
    main()
