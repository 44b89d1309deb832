"""The solvers of the robustness benchmark, each run in a process of its own.

To add a solver, write a function that builds its estimator and add it to `SOLVERS`.

`run` starts this module as a subprocess, which loads the problem, warms up, fits and scores. It
reports on its standard output, one JSON object a line: ``{"event": "fitting"}``, then
``{"event": "fitted"}``, then the result.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from scripts.benchmarks.problems import Problem

PEER_TOLERANCE = 1e-3  # LIBSVM's default


@dataclass
class Result:
    """What a solver achieved on a problem; None stands for what it does not report.

    Attributes
    ----------
    status : str
        "converged", another status of `BigSVC`, "timeout", "failed", "not installed" or "no data".
    n : int
        Rows of the training set.
    seconds : float
        Of the fit, without imports and loading of compiled code; after a timeout, the limit.
    accuracy : float
        On the test set, in percent.
    kernel_values : int
        Computed during the fit.
    message : str
        Why there is no model.
    """

    status: str
    n: int | None = None
    seconds: float | None = None
    accuracy: float | None = None
    n_support: int | None = None
    iterations: int | None = None
    passes: int | None = None
    kernel_values: int | None = None
    relative_gap: float | None = None
    message: str = ""

    @property
    def work(self) -> float | None:
        """Kernel values computed, relative to those between all rows and the support vectors."""
        if not (self.kernel_values and self.n and self.n_support):
            return None
        return self.kernel_values / (self.n * self.n_support)


def block(C: float, gamma: float, tolerance: float) -> Any:
    """Build the block schedule of bigsvm."""
    from bigsvm import BigSVC

    return BigSVC(C=C, gamma=gamma, schedule="block", tol=tolerance, max_iter=-1)


def exact(C: float, gamma: float, tolerance: float) -> Any:
    """Build the exact schedule of bigsvm, the algorithm of the paper step by step."""
    from bigsvm import BigSVC

    return BigSVC(C=C, gamma=gamma, schedule="exact", tol=tolerance, max_iter=-1)


def intelex(C: float, gamma: float, tolerance: float) -> Any:
    """Build the SVC of scikit-learn-intelex; its cache size is in megabytes."""
    from sklearnex.svm import SVC

    return SVC(C=C, gamma=gamma, tol=PEER_TOLERANCE, cache_size=2000)


SOLVERS: dict[str, Callable[[float, float, float], Any]] = {
    "block": block,
    "exact": exact,
    "intelex": intelex,
}


def solver_tolerance(solver: str, tolerance: float) -> float:
    """Return the tolerance a solver runs at: bigsvm's varies, the peer's is its own."""
    return PEER_TOLERANCE if solver == "intelex" else tolerance


def warm_up(solver: str, rows: int, features: int) -> None:
    """Fit and predict once on a small, easy problem, so that compiled code is loaded.

    Parameters
    ----------
    solver : str
        A key of `SOLVERS`.
    rows, features : int
        Of the problem to come. The code that `BigSVC` runs depends on the number of rows: up to
        1,000 are solved to rounding, and on few rows the block schedule is the exact one.
    """
    random = np.random.default_rng(0)
    rows = min(rows, 20_000 if solver == "block" else 1200)
    X = random.normal(size=(rows, features)).astype(np.float32)
    y = np.where(X[:, 0] + random.normal(scale=0.05, size=rows) > 0, 1, -1)
    SOLVERS[solver](1.0, 1 / features, 1e-3).fit(X, y).predict(X[:32])


def touch_memory() -> None:
    """Use and free as much memory as a fit may need.

    Virtual machines often return free memory to their host; the first touch of a page then takes
    up to twenty times as long. That is not a property of a solver.
    """
    np.ones(2**31, np.uint8)


def fit_and_score(
    model: Any, split: tuple[np.ndarray, ...], report: Callable[[str], None]
) -> Result:
    """Fit an estimator and score it on the test set.

    Parameters
    ----------
    model : estimator
    split : X, y, X_test, y_test
    report : callable
        Called with "fitting" and "fitted", at these moments.

    Returns
    -------
    Result
    """
    X, y, X_test, y_test = split
    report("fitting")
    begin = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - begin
    report("fitted")
    if type(model).__module__.startswith("sklearnex") and not hasattr(model, "_onedal_estimator"):
        raise RuntimeError("scikit-learn-intelex fell back to scikit-learn")
    return Result(
        status=getattr(model, "status_", ["converged"])[0],
        n=len(y),
        seconds=seconds,
        accuracy=100 * float(np.mean(model.predict(X_test) == y_test)),
        n_support=int(np.sum(model.n_support_)),
        iterations=_total(model, "n_iter_"),
        passes=_total(model, "passes_"),
        kernel_values=_total(model, "kernel_values_"),
        relative_gap=_largest(model, "relative_gap_"),
    )


def run(solver: str, problem: Problem, tolerance: float, limit: float) -> Result:
    """Run a solver on a problem in a fresh subprocess.

    Parameters
    ----------
    solver : str
        A key of `SOLVERS`.
    problem : Problem
    tolerance : float
        Of bigsvm; a peer takes its own.
    limit : float
        Seconds after which the fit is killed. Loading, warming up and scoring do not count.

    Returns
    -------
    Result
    """
    request = json.dumps({"solver": solver, "problem": asdict(problem), "tolerance": tolerance})
    command = [sys.executable, "-m", "scripts.benchmarks.solvers", request]
    result, expired = None, threading.Event()
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):

        def expire() -> None:
            expired.set()
            process.kill()

        timer = threading.Timer(limit, expire)
        try:
            assert process.stdout is not None
            for line in process.stdout:
                message = json.loads(line)
                if message == {"event": "fitting"}:
                    timer.start()
                elif message == {"event": "fitted"}:
                    timer.cancel()
                else:
                    result = Result(**message)
        except BaseException:
            process.kill()  # Ctrl-C must not leave the fit running
            raise
        finally:
            timer.cancel()
        if expired.is_set():
            return Result("timeout", seconds=limit)
        if result is None:
            process.wait()
            errors.seek(0)
            lines = errors.read().splitlines() or [f"exit code {process.returncode}"]
            return Result("failed", message=lines[-1])
        return result


def main() -> None:
    """Serve one request of `run`."""
    # Libraries may print; the pipe to the parent is for messages only.
    with os.fdopen(os.dup(1), "w", buffering=1) as pipe:
        os.dup2(2, 1)
        warnings.simplefilter("ignore")  # the status says whether the fit converged
        result = _serve(
            json.loads(sys.argv[1]), lambda event: print(json.dumps({"event": event}), file=pipe)
        )
        print(json.dumps(asdict(result)), file=pipe)


def _serve(request: dict[str, Any], report: Callable[[str], None]) -> Result:
    build, problem = SOLVERS[request["solver"]], Problem(**request["problem"])
    try:
        model = build(problem.C, problem.gamma, request["tolerance"])
    except ModuleNotFoundError as error:
        return Result("not installed", message=str(error))
    try:
        split = problem.load()
    except FileNotFoundError as error:
        return Result("no data", message=str(error))
    warm_up(request["solver"], *split[0].shape)
    if len(split[1]) >= 10_000:
        touch_memory()
    return fit_and_score(model, split, report)


def _total(model: Any, name: str) -> int | None:
    value = getattr(model, name, None)
    return None if value is None else int(np.sum(value))


def _largest(model: Any, name: str) -> float | None:
    value = getattr(model, name, None)
    return None if value is None else float(np.max(value))


if __name__ == "__main__":
    main()
