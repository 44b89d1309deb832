"""The processes of peers.py, and the folder of results that they fill."""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts import python_path
from scripts.benchmarks.machine import busy_seconds, cpu_model
from scripts.benchmarks.peers_report import CANDIDATES, Result

WORKER = "scripts.benchmarks.peers_worker"


@dataclass(frozen=True)
class Data:
    """How a data set is prepared, and the grid for it."""

    prepare: dict[str, Any]
    Cs: tuple[float, ...]
    sigmas: tuple[float, ...]


STANDARD = {"scaling": "standard", "seed": 0}
DATA = {
    "miniboone": Data(
        {**STANDARD, "clip": 8, "drop_value": -999, "test_rows": 12825},
        (0.3, 1.0, 3.0, 10.0),
        (3.0, 4.0, 6.0, 8.0),
    ),
    "ijcnn1": Data({}, (1.0, 3.0, 10.0, 30.0), (0.5, 0.7, 1.0)),
    "magic": Data({**STANDARD, "test_rows": 6000}, (0.3, 1.0, 3.0, 10.0), (1.0, 1.5, 2.5)),
}
KEY = ("data", "machine", "threads", "candidate", "rows", "repetition", "C", "sigma", "cache_mb")
MEASURED = (
    "fit_seconds", "predict_seconds", "peak_bytes", "n_support", "accuracy", "test_rows",
    "others",  # cores that other processes kept busy meanwhile
)  # fmt: skip
DISTURBED = 0.15


class Failed(Exception):
    """A process ended badly; the log says why."""


class Bench:
    """The output folder, and the processes that fill it."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.options = arguments
        self.out: Path = arguments.out
        self.folder = self.out / "data" / arguments.data
        self.out.mkdir(parents=True, exist_ok=True)
        self.log = (self.out / "log.txt").open("a")
        self.results = self._load()
        self.made: list[Result] = []
        self.warm: set[str] = set()
        self.others = 0.0  # cores kept busy by others during the last command
        count = str(arguments.threads)
        names = ("OMP", "NUMBA", "OPENBLAS", "MKL")
        self.environment = {**os.environ, "PYTHONPATH": python_path()}
        self.environment |= {f"{name}_NUM_THREADS": count for name in names}
        if hasattr(
            os, "sched_setaffinity"
        ):  # also binds libraries that ignore the variables, such as oneDAL's TBB
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.threads])

    def run(self, command: Sequence[str]) -> None:
        """Run a command to its end."""
        self.log.write(f"+ {' '.join(command)}\n")
        self.log.flush()
        process = subprocess.Popen(
            command, stdout=self.log, stderr=subprocess.STDOUT, env=self.environment
        )
        begin, busy = time.monotonic(), busy_seconds()
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            process.wait()
            raise
        ours = usage.ru_utime + usage.ru_stime
        seconds = max(0.01, time.monotonic() - begin)
        self.others = max(0.0, (busy_seconds() - busy - ours) / seconds)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise Failed(f"exit code {process.returncode}; see {self.log.name}")

    def worker(self, work: str, **details: Any) -> dict[str, Any]:
        """Have the worker do a piece of work."""
        with tempfile.TemporaryDirectory() as folder:
            question, answer = Path(folder, "work.json"), Path(folder, "answer.json")
            question.write_text(json.dumps({"work": work, "folder": str(self.folder), **details}))
            self.run([sys.executable, "-m", WORKER, str(question), str(answer)])
            return json.loads(answer.read_text())

    def prepare(self) -> dict[str, int]:
        """The rows of the data set, in the output folder; the sizes of its parts."""
        sizes = self.folder / "sizes.json"
        if not sizes.exists():
            data = self.options.data
            found = self.worker("data", data=data, prepare=DATA[data].prepare)
            sizes.write_text(json.dumps(found))
        return json.loads(sizes.read_text())

    def store(self, part: str, rows: int | None = None) -> str:
        """The first rows of a part, as bigsvm takes them."""
        store = self.folder / (f"{part}-{rows}.h5" if rows else f"{part}.h5")
        if not store.exists():
            partial = store.with_suffix(".partial")
            self.worker("store", part=part, rows=rows, store=str(partial))
            partial.replace(store)
        return str(store)

    def config(self, name: str, rows: int, folder: str, snapshot_every: int = 5000) -> Path:
        """A config of bigsvm (JSON is YAML), without C and sigma."""
        path = Path(folder, f"{name}.yaml")
        values = {
            "data": {"train": self.store("train", rows)},
            "model": {"algorithm": "mfw", "kernel": {"name": "rbf"}},
            "solver": {**(CANDIDATES[name].solver or {}), "absolute_tolerance": 1e-5},
            "run": {"snapshot_every": snapshot_every},
        }
        path.write_text(json.dumps(values, indent=2))
        return path

    def best_parameters(self, name: str, rows: int) -> tuple[float, float]:
        """(C, sigma) that does best on rows held out of at most 10,000 training rows."""
        half = min(10_000, rows) // 2
        settings = {"Cs": self.options.C, "sigmas": self.options.sigma, "rows": half}
        file = self.out / f"tuned-{self.options.data}.json"
        known = json.loads(file.read_text()) if file.exists() else {}
        if known.get(name, {}).get("asked") != settings:
            with tempfile.TemporaryDirectory() as folder:
                more: dict[str, Any] = {"cache_mb": self.options.cache_mb, **settings}
                if CANDIDATES[name].solver:
                    more["config"] = str(self.config(name, half, folder))
                found = self.worker("tune", candidate=name, threads=self.options.threads, **more)
            known[name] = {"asked": settings, **found}
            file.write_text(json.dumps(known, indent=1))
        best = max(known[name]["grid"], key=lambda point: point["accuracy"])
        C, sigma = best["C"], best["sigma"]
        edges = [
            key
            for key, value, grid in (("C", C, self.options.C), ("sigma", sigma, self.options.sigma))
            if len(grid) > 1 and value in (min(grid), max(grid))
        ]
        note = f"  ({' and '.join(edges)} at the edge of the grid)" if edges else ""
        print(
            f"  {CANDIDATES[name].label:<26} C {C:<4g} sigma {sigma:<4g} "
            f"{100 * best['accuracy']:.2f} % on {half:,} held-out rows{note}",
            flush=True,
        )
        return C, sigma

    def warm_up(self, name: str, rows: int) -> None:
        """Have numba compile all that a schedule of bigsvm needs, and keep it on disk."""
        if CANDIDATES[name].solver and name not in self.warm:
            self.bigsvm(name, min(1000, rows), 1.0, self.options.sigma[0], None)
            self.warm.add(name)

    def measure(
        self, name: str, rows: int, repetition: int, C: float, sigma: float, curve: bool
    ) -> Result:
        """One fit, unless its result is there already."""
        key = {
            "data": self.options.data, "machine": cpu_model(), "threads": self.options.threads,
            "candidate": name, "rows": rows, "repetition": repetition, "C": C, "sigma": sigma,
            "cache_mb": self.options.cache_mb,
        }  # fmt: skip
        again = self.options.again is not None and name in (self.options.again or CANDIDATES)
        same = [r for r in self.results if all(str(r[part]) == str(key[part]) for part in KEY)]
        if same and (not again or same[0] in self.made):
            return same[0]
        self.warm_up(name, rows)
        candidate = CANDIDATES[name]
        fitted = min(rows, candidate.at_most or rows)
        if candidate.solver:
            answer = self.bigsvm(name, fitted, C, sigma, self._curve(key) if curve else None)
        else:
            answer = self.worker("fit", **{**key, "rows": fitted})
            answer["others"] = self.others
        result = {**key, **{what: answer[what] for what in MEASURED}}
        self.results = [*(r for r in self.results if r not in same), result]
        self.made.append(result)
        self._save()
        others = result["others"]
        note = f"  (others kept {others:.1f} cores busy)" if others > DISTURBED else ""
        print(
            f"  {candidate.label:<26} {rows:>7,} rows  #{repetition}  fit "
            f"{result['fit_seconds']:.2f} s, {100 * result['accuracy']:.2f} %{note}",
            flush=True,
        )
        return result

    def bigsvm(
        self, name: str, rows: int, C: float, sigma: float, curve: Path | None
    ) -> dict[str, Any]:
        """One run of bigsvm's own command, its model scored; one more for a curve."""
        with tempfile.TemporaryDirectory(dir=self.out, prefix=f".{name}-") as folder:
            run = Path(folder) / "run"
            config = str(self.config(name, rows, folder))
            fitted = self.worker("fit_bigsvm", config=config, C=C, sigma=sigma, run=str(run))
            others = self.others
            summary = json.loads((run / "summary.json").read_text())
            if summary["status"] != "converged":
                raise Failed(f"{name}: {summary['status']} instead of converged")
            answer = self.worker("score", model=str(run / "model.safetensors"))
            answer |= {**fitted, "others": others}
            if curve:
                self.draw_curve(name, rows, C, sigma, curve)
            return answer

    def draw_curve(self, name: str, rows: int, C: float, sigma: float, curve: Path) -> None:
        """The same run once more with some thirty snapshots, all of them scored."""
        with tempfile.TemporaryDirectory(dir=self.out, prefix=f".{name}-") as folder:
            run = Path(folder) / "run"
            config = str(self.config(name, rows, folder, max(100, rows // 30)))
            self.worker("fit_bigsvm", config=config, C=C, sigma=sigma, run=str(run))
            test = ["--test", self.store("test")]
            self.run([sys.executable, "-m", "bigsvm.evaluate", str(run), *test])
            write_curve(run, json.loads((run / "summary.json").read_text()), curve)

    def curve(self, result: Result) -> list[tuple[float, float]]:
        """(seconds, accuracy) of the snapshots of a run of bigsvm."""
        path = self._curve(result)
        if not path.exists():
            return []
        with path.open() as file:
            return [(float(row["seconds"]), float(row["accuracy"])) for row in csv.DictReader(file)]

    def _curve(self, key: Result) -> Path:
        parts = ("data", "rows", "candidate", "C", "sigma")
        return self.out / "curves" / f"{'-'.join(str(key[part]) for part in parts)}.csv"

    def _load(self) -> list[Result]:
        path = self.out / "results.csv"
        if not path.exists():
            return []
        with path.open() as file:
            rows: list[Result] = list(csv.DictReader(file))
        for row in rows:
            row |= {what: int(row[what]) for what in ("threads", "rows", "repetition", "n_support")}
            row |= {what: float(row[what]) for what in MEASURED if what != "n_support"}
        return rows

    def _save(self) -> None:
        partial = self.out / "results.partial"
        with partial.open("w", newline="") as file:
            writer = csv.DictWriter(file, [*KEY, *MEASURED], lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.results)
        partial.replace(self.out / "results.csv")


def write_curve(run: Path, summary: dict[str, Any], curve: Path) -> None:
    """Iteration, seconds and accuracy of each snapshot.

    metrics.jsonl has a line every half second, too coarse for the first models; but its last line
    says what the run's clock showed when the file was written, and that dates every snapshot file.
    """
    metrics = run / "metrics.jsonl"
    last = json.loads(metrics.read_text().splitlines()[-1])
    offset = last["seconds"] - metrics.stat().st_mtime
    curve.parent.mkdir(exist_ok=True)
    with (run / "evaluation.csv").open() as source, curve.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("iteration", "seconds", "accuracy"))
        for row in csv.DictReader(source):
            iteration = int(row["iteration"])
            seconds = summary["train_seconds"]
            if iteration != summary["iterations"]:
                snapshot = run / "snapshots" / f"model-{iteration:08d}.safetensors"
                seconds = snapshot.stat().st_mtime + offset
            writer.writerow((iteration, f"{seconds:.3f}", row["accuracy"]))
