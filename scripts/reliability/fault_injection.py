"""Attack trainings in every way we can think of; check that they end with the same bits.

    python -m scripts.reliability.fault_injection --minutes 30

Draws some problems (data, algorithm, kernel, schedule), trains each of them undisturbed, and then
again and again: with another form of the data, another interval of checkpoints, one thread or two,
by itself, with workers of its own or on a Dask cluster, and with one or two attacks at random
moments. Afterwards the same command finishes the run. A deviation is a model, snapshot or summary
that differs from the undisturbed run's, an iteration lost that was saved, a traceback, a wrong exit
code, a hang, or a temporary file or a process left over.

    python -m scripts.reliability.fault_injection --minutes 99 --runs 500 --tally tally.json

With --tally, the counts of a former run are read first and added to.

Needs Linux; the attacks on a small disk need the right to mount one, and are left out otherwise.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bigsvm.config import PrepareOptions
from bigsvm.preparation.pipeline import prepare
from scripts import python_path
from scripts.reliability.attacks import ON_A_SMALL_DISK, attacks_on, small_disk
from scripts.reliability.clusters import CLUSTERS
from scripts.reliability.damage import copy
from scripts.reliability.fork_server import ForkServer
from scripts.reliability.tally import Tally
from scripts.reliability.trial import OTHER_RESULT, Attempt, Trial

KERNELS: list[dict[str, Any]] = [
    {"name": "rbf", "sigma": 1},
    {"name": "laplacian", "sigma": 2},
    {"name": "linear"},
    {"name": "poly", "degree": 2, "gamma": 0.5, "coef0": 1},
]
THREADS = 2  # of a parallel training; the undisturbed one has a single thread
# How often each kind of cluster is drawn. Local workers take long to start.
SHARES = {"none": 16, "local": 1, "outside": 3}
# How a training is started: as users do, and in a way that leaves the data on the disk, to be read
# again in every pass, though it would fit in memory.
IN_MEMORY = ["-m", "bigsvm.train"]
STREAMED = [
    "-c",
    "import sys; from dataclasses import replace; "
    "from bigsvm import cli, train; from bigsvm.backends import memory; plan = memory.plan_memory; "
    "memory.plan_memory = lambda *p, **k: replace(plan(*p, **k), resident=0); "
    "sys.exit(cli.run(train.main))",
]
# Forms of one and the same data.
FORMS = {"one chunk.zarr": 10_000, "small chunks.zarr": 64, "chunks.h5": 100}
# These differ when a run was resumed: kernel columns are computed again.
TIMES = (
    "train_seconds", "peak_rss_bytes", "overhead_seconds_a_pass", "shares", "seconds", "rss",
    "kernel_values", "work",
)  # fmt: skip


@dataclass
class Problem:
    """A config, and the result of its undisturbed run."""

    data: str
    settings: dict[str, Any]
    expected: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.data}, {self.settings['model']}, {self.settings['solver']['schedule']}"


@dataclass(frozen=True)
class Plan:
    """The cluster of one run, and the attacks on it."""

    cluster: str
    names: list[str]


class FaultInjection:
    """Problems, and the folder in which they are tried."""

    def __init__(self, folder: Path, seed: int, tally: Tally, only: list[str]) -> None:
        self.folder = folder
        self.seed = seed
        self.tally = tally
        self.fork_server = ForkServer()
        with small_disk(folder / "disk") as disk:
            left_out = set() if disk else ON_A_SMALL_DISK.keys()
        self._kinds = {cluster: attacks_on(cluster).keys() - left_out for cluster in CLUSTERS}
        if only:
            self._kinds = {cluster: kinds & set(only) for cluster, kinds in self._kinds.items()}
        if not any(self._kinds.values()):
            sys.exit(f"--attack: none of {', '.join(only)} can be tried here")

    def make_data(self) -> list[str]:
        """Write small synthetic and real data sets in several formats; return their names."""
        options = PrepareOptions(scaling="standard")
        sources = {"synthetic": options.model_copy(update={"rows": 400, "features": 4})}
        real = Path(os.environ.get("BIGSVM_DATA", "/nonexistent"))
        for name in ("sonar.all-data", "heart_scale"):
            if (real / name).is_file():
                sources[str(real / name)] = options
        for source, prepare_options in sources.items():
            folder = self.folder / Path(source).name
            folder.mkdir()
            for form, rows in FORMS.items():
                prepare(
                    source, folder / form, prepare_options.model_copy(update={"chunk_rows": rows})
                )
        return [Path(source).name for source in sources]

    def draw_problem(self, data: str, chance: random.Random) -> Problem:
        """A problem at random, trained undisturbed."""
        model = {
            "algorithm": chance.choice(["mfw", "fw"]),
            "C": chance.choice([1.0, 10.0, 100.0]),
            "kernel": chance.choice(KERNELS),
        }
        solver = {
            "schedule": chance.choice(["exact", "block"]),
            "hot_set": chance.choice([16, 64]),
            "absolute_tolerance": 1e-8,
            "max_iterations": chance.choice([600, 1500, 3000]),
        }
        problem = Problem(data, {"model": model, "solver": solver})
        run_dir = Path(tempfile.mkdtemp(dir=self.folder)) / "undisturbed"
        store = self.folder / data / "one chunk.zarr"
        config = self._config(problem, 1, (store, store), {}, {"kind": "none"}, run_dir)
        arguments = [*IN_MEMORY, str(config), "--run-dir", str(run_dir)]
        attempt = Attempt(arguments, self.folder, self.fork_server)
        if attempt.wait() != 0:
            sys.exit(f"a training failed undisturbed:\n{attempt.said}")
        problem.expected = result_of(run_dir)
        return problem

    def plan(self, number: int, chance: random.Random) -> Plan:
        """Each attack in turn, and sometimes one more."""
        kinds = sorted(set().union(*self._kinds.values()))
        first = kinds[number % len(kinds)]
        clusters = [cluster for cluster in CLUSTERS if first in self._kinds[cluster]]
        cluster = chance.choices(clusters, [SHARES[cluster] for cluster in clusters])[0]
        more = chance.choices(sorted(self._kinds[cluster]), k=chance.choice([0, 0, 1]))
        return Plan(cluster, [first, *more])

    def attack(self, number: int, problem: Problem) -> None:
        """One run: attacked, finished, compared."""
        chance = random.Random(f"{self.seed} {number}")
        plan = self.plan(number, chance)
        with ExitStack() as stack:
            folder = Path(tempfile.mkdtemp(dir=self.folder))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            run_dir = folder / "run"
            if ON_A_SMALL_DISK.keys() & set(plan.names):
                disk = stack.enter_context(small_disk(folder / "disk"))
                assert disk is not None
                run_dir = disk / "run"
            form = chance.choice(sorted(FORMS))
            copy(self.folder / problem.data / form, folder / form)
            copy(self.folder / problem.data / "one chunk.zarr", folder / "test.zarr")
            saving = {
                "checkpoint_every": chance.choice([5, 20, 60, 200]),
                "keep_checkpoints": chance.choice([1, 2, 3]),
            }
            cluster = CLUSTERS[plan.cluster](folder / "cluster", self.fork_server)
            stack.callback(cluster.close)
            stores = folder / form, folder / "test.zarr"
            threads = chance.choice([1, THREADS])
            config = self._config(problem, threads, stores, saving, cluster.settings, folder)
            way = chance.choice([IN_MEMORY, STREAMED])
            arguments = [*way, str(config), "--run-dir", str(run_dir)]
            iterations = problem.expected["summary"]["iterations"]
            trial = Trial(
                arguments, run_dir, *stores, folder, iterations, saving["checkpoint_every"],
                cluster, self.fork_server, chance,
            )  # fmt: skip
            for name in plan.names:
                attacks_on(plan.cluster)[name](trial)
            if trial.end(trial.start(), 0) == 0:
                for difference in differences(problem.expected, result_of(run_dir)):
                    trial.deviates(OTHER_RESULT, difference)
                trial.check_reports()
                trial.check_nothing_left()
        ways = plan.cluster, problem.settings["solver"]["schedule"], f"{threads} threads"
        self.tally.add(number, str(problem), ways, plan.names, trial)

    def _config(
        self,
        problem: Problem,
        threads: int,
        stores: tuple[Path, Path],
        saving: dict[str, Any],
        cluster: dict[str, Any],
        beside: Path,
    ) -> Path:
        config = beside.parent / f"{beside.name}.yaml"
        values = {
            "data": {"train": str(stores[0]), "test": str(stores[1] / "train")},
            "model": problem.settings["model"],
            "solver": {**problem.settings["solver"], "threads": threads},
            "run": {"snapshot_every": 200, **saving},
            "cluster": cluster,
        }
        config.write_text(json.dumps(values))  # JSON is YAML
        return config


def result_of(run_dir: Path) -> dict[str, Any]:
    """All of a finished run that must not depend on what happened on the way."""
    files = [run_dir / "model.safetensors", *sorted((run_dir / "snapshots").iterdir())]
    summary = json.loads((run_dir / "summary.json").read_text())
    last_report = json.loads((run_dir / "metrics.jsonl").read_text().splitlines()[-1])
    return {
        "summary": {key: value for key, value in summary.items() if key not in TIMES},
        "metrics": {key: value for key, value in last_report.items() if key not in TIMES},
        **{str(file.relative_to(run_dir)): file.read_bytes() for file in files},
    }


def differences(expected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """What differs between two finished runs."""
    differing = []
    for name in sorted(expected.keys() | found.keys()):
        one, other = expected.get(name), found.get(name)
        if one != other:
            words = "not what the undisturbed run has"
            if isinstance(one, dict) and isinstance(other, dict):
                keys = (key for key in one.keys() | other.keys() if one.get(key) != other.get(key))
                words += " in " + ", ".join(sorted(keys))
            differing.append(f"{name}: {words}")
    return differing


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--minutes", type=float, default=10.0, metavar="M", help="begin no run later (default 10)")
    add("--runs", type=int, default=10**9, metavar="N", help="nor more of them than this")
    add("--tally", type=Path, metavar="FILE", help="file of counts, added to on every run")
    add("--seed", type=int, default=0, metavar="S", help="of problems and attacks (default 0)")
    add("--problems", type=int, default=20, metavar="P", help="how many to draw (default 20)")
    add("--attack", action="append", default=[], metavar="NAME", help="try this one only; "
        "repeatable")  # fmt: skip
    add("--jobs", type=int, default=os.cpu_count(), metavar="J", help="runs at a time")
    return parser.parse_args()


def main() -> int:
    """Run the script."""
    arguments = parse_arguments()
    # Of all trainings.
    os.environ |= {"PYTHONPATH": python_path(), "NUMBA_NUM_THREADS": str(THREADS)}
    chance = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory(prefix="fault-injection-") as folder:
        tally = Tally(arguments.tally)
        injection = FaultInjection(Path(folder), arguments.seed, tally, arguments.attack)
        names = injection.make_data()
        drawn = [names[k % len(names)] for k in range(arguments.problems)]
        with ThreadPoolExecutor(arguments.jobs) as pool:
            seeds = [random.Random(chance.random()) for _ in drawn]
            problems = list(pool.map(injection.draw_problem, drawn, seeds))
        deadline = time.monotonic() + 60 * arguments.minutes
        counts = injection.tally.counts
        most = arguments.runs - counts["runs"]
        numbers = iter(range(counts["last"] + 1, counts["last"] + most + 1))
        taking, ending = threading.Lock(), threading.Event()
        # Runs in progress end, and what they have started and mounted is removed.
        signal.signal(signal.SIGTERM, lambda *_: ending.set())

        def work() -> None:
            while time.monotonic() < deadline and not ending.is_set():
                with taking:
                    number = next(numbers, None)
                if number is None:
                    return
                injection.attack(number, problems[number % len(problems)])

        with ThreadPoolExecutor(arguments.jobs) as pool:
            workers = [pool.submit(work) for _ in range(arguments.jobs)]
        if failures := [error for worker in workers if (error := worker.exception())]:
            raise BaseExceptionGroup("fault injection itself failed", failures)
        injection.fork_server.close()
    print(injection.tally)
    return 1 if injection.tally.deviations or not injection.tally.counts["runs"] else 0


if __name__ == "__main__":
    sys.exit(main())
