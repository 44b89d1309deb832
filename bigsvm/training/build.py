"""Builds a training from its config: backend, problem, schedule and initial state."""

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

import numba
import numpy as np

from bigsvm.backends import Backend
from bigsvm.backends.dask import DaskBackend
from bigsvm.backends.local import LocalBackend
from bigsvm.backends.memory import MemoryPlan, check_chunk_size, plan_memory
from bigsvm.cluster.workers import Cluster
from bigsvm.config import EXACT_UP_TO, Config, SolverConfig
from bigsvm.core.compiled import available_threads
from bigsvm.core.errors import UserError
from bigsvm.core.labels import classes_to_json, n_outputs_for, one_vs_rest_signs
from bigsvm.core.variance import VarianceAccumulator, scale_gamma
from bigsvm.core.version import ARITHMETIC
from bigsvm.kernels import Kernel, warm_up
from bigsvm.preparation.data_sets import absolute_spec, with_absolute_paths
from bigsvm.solvers.block import largest_hot_set
from bigsvm.solvers.column_cache import space_for_columns
from bigsvm.solvers.joint import JointProblem, JointState
from bigsvm.solvers.problem import Problem
from bigsvm.solvers.reweight import Reweighting
from bigsvm.solvers.schedule import BlockSchedule, ExactSchedule, Schedule
from bigsvm.solvers.solve import Task
from bigsvm.stores.fingerprint import finite_chunks, verified_fingerprint
from bigsvm.stores.store import Dataset
from bigsvm.training.checkpoint import Checkpoints, check_same_problem
from bigsvm.training.loop import Session, Training
from bigsvm.training.run_dir import RunDir
from bigsvm.training.snapshots import SnapshotWriter
from bigsvm.training.threshold import Rule
from bigsvm.training.validation import Validation, ValidationRows
from bigsvm.training.weights import Weights, bytes_per_pattern, read_weights


def build_training(
    config: Config,
    run_dir: RunDir,
    dataset: Dataset,
    session: Session,
    fresh: bool = False,
    validation_rows: ValidationRows | None = None,
) -> Training:
    """Build the training that a config describes, resuming from the newest checkpoint."""
    config = with_gamma(_with_schedule(config, dataset.n), dataset)
    model, solver, log = config.model, config.solver, session.display.log
    kernel = Kernel(model.kernel.name, model.kernel.rate, model.kernel.coef0, model.kernel.degree)
    initial = initial_pattern(solver, dataset.n)
    held_out = None if validation_rows is None else validation_rows.held_out
    weights = read_weights(model, dataset, held_out)
    check_chunk_size(solver.memory_limit, dataset)
    fingerprint = verified_fingerprint(dataset)
    reweighting = _reweighting(config, dataset)
    threshold = _threshold_rule(config, dataset)
    identity = {"data": fingerprint[:16], "initial": initial}
    identity |= _identity_of_data(config, dataset)
    identity |= _identity_of_model(config, kernel, weights, dataset)
    resolved = config.model_copy(update={"data": with_absolute_paths(config.data)})
    settings = resolved.model_dump(mode="json")
    keep, prepared = config.run.keep_checkpoints, dataset.prepare_options
    checkpoints = Checkpoints(run_dir.checkpoints, identity, keep, settings, prepared)
    checkpoint = None if fresh else checkpoints.latest()
    validation = None
    if validation_rows is not None:
        validation = Validation(validation_rows, run_dir, config.run.stop_early, log)
    if checkpoint:
        rounds = reweighting.rounds if reweighting else 1
        stops = validation is not None and validation.stops
        check_unfinished(run_dir, checkpoint.state, solver, rounds, stops)

    if solver.threads is not None:
        numba.set_num_threads(min(solver.threads, available_threads()))
    warm_up(kernel)
    held = checkpoint.state.nbytes if checkpoint else 0
    backend, memory = _backend(config, dataset, kernel, session.cluster, held)
    if checkpoint:
        backend.kernel_values.total = checkpoint.kernel_values
        session.stopwatch.earlier = checkpoint.seconds
    margin = weights.margin
    if checkpoint and checkpoint.state.margin is not None:
        margin = checkpoint.state.margin
    problem, schedule = _problem(config, dataset, kernel, backend, memory, weights.C, margin)
    if checkpoint:
        check_same_problem(checkpoint.state, problem, run_dir.checkpoints)
    state = checkpoint.state if checkpoint else problem.start(initial)

    if fresh:  # only after everything has been checked
        run_dir.clear()
    run_dir.begin(resolved.to_yaml(), state.resumable_iteration)
    if checkpoint:
        log(f"resuming at iteration {state.resumable_iteration:,}, from {run_dir.checkpoints}")
    if validation is not None:
        validation.resume(state.resumable_iteration)
    about = {"algorithm": model.algorithm, "C": identity["C"], "fingerprint": fingerprint}
    about |= {} if threshold == "zero" else {"threshold_rule": threshold}
    about |= {key: value for key, value in weights.identity.items() if value is not None}
    return Training(
        Task(problem, schedule, state, reweighting),
        config,
        run_dir,
        checkpoints,
        SnapshotWriter(dataset, backend, asdict(kernel), about, threshold),
        session,
        validation,
    )


def initial_pattern(solver: SolverConfig, n: int) -> int:
    """The pattern to start from, of n."""
    initial = solver.initial
    if initial == "random":
        return int(np.random.default_rng(solver.seed).integers(n))
    if not 0 <= initial < n:
        raise UserError(f"solver.initial = {initial}: the training set has rows 0 to {n - 1}")
    return initial


def _with_schedule(config: Config, n: int) -> Config:
    """The config with `schedule: auto` replaced by the schedule for n patterns."""
    if config.solver.schedule != "auto":
        return config
    paper = config.solver.absolute_tolerance is not None
    schedule = "exact" if paper and n <= EXACT_UP_TO else "block"
    solver = config.solver.model_copy(update={"schedule": schedule})
    return config.model_copy(update={"solver": solver})


def with_gamma(config: Config, dataset: Dataset) -> Config:
    """The config with `gamma: scale` or `auto` replaced by the number that the data gives."""
    kernel = config.model.kernel
    if not isinstance(kernel.gamma, str):
        return config
    variance = 1.0
    if kernel.gamma == "scale":
        spread = VarianceAccumulator()
        for rows in finite_chunks(dataset):
            spread.add(rows)
        variance = spread.variance
    gamma = scale_gamma(dataset.d, variance)
    kernel = kernel.model_copy(update={"gamma": gamma})
    return config.model_copy(update={"model": config.model.model_copy(update={"kernel": kernel})})


def _identity_of_data(config: Config, dataset: Dataset) -> dict[str, Any]:
    """The size of the data set, its metadata in the models of the run, and what is held out."""
    fraction = config.data.validation_fraction
    held_out = {"validation_fraction": fraction, "seed": config.solver.seed}
    return {
        "rows": dataset.n,
        "features": dataset.d,
        **classes_to_json(dataset.classes),
        "feature names": _digest(dataset.feature_names),
        "scaling": _digest(dataset.scaling.to_json() if dataset.scaling else None),
        **({} if fraction is None else held_out),
    }


def _digest(value: Any) -> str | None:
    if value is None:
        return None
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _identity_of_model(
    config: Config, kernel: Kernel, weights: Weights, dataset: Dataset
) -> dict[str, Any]:
    """The parts of the config that must not change when a run is resumed."""
    model, solver = config.model, config.solver
    rounds = model.algorithm == "rwsvm"
    return {
        "algorithm": model.algorithm,
        "C": model.plain_C(dataset.n, dataset.d),
        **{f"kernel.{key}": value for key, value in asdict(kernel).items()},
        "schedule": solver.schedule,
        "hot_set": solver.hot_set if solver.schedule == "block" else None,
        "arithmetic": ARITHMETIC,
        "intercept": model.intercept or None,
        "threshold": None if model.threshold == "zero" else model.threshold,
        **weights.identity,
        # The tolerance of a round influences the next one. The number of rounds may grow.
        "reweight": model.reweight.model_dump() if rounds else None,
        "tolerance of a round": str(solver.stop_rule) if rounds else None,
    }


def _reweighting(config: Config, dataset: Dataset) -> Reweighting | None:
    model = config.model
    if model.algorithm != "rwsvm":
        return None
    if len(dataset.classes) > 2:
        raise UserError(
            f"model.algorithm = rwsvm: needs two classes, and {dataset.path} has "
            f"{len(dataset.classes)}; choose another algorithm, or one class against the rest "
            "(`positive` in data.train)"
        )
    return Reweighting(model.rounds, **model.reweight.model_dump())


def _threshold_rule(config: Config, dataset: Dataset) -> Rule:
    rule = config.model.threshold
    if rule != "zero" and len(dataset.classes) > 2:
        raise UserError(
            f"model.threshold = {rule}: is for two classes, and {dataset.path} has "
            f"{len(dataset.classes)}, of which the largest decision value decides; leave it out"
        )
    return rule


def _backend(
    config: Config, dataset: Dataset, kernel: Kernel, cluster: Cluster | None, held: int
) -> tuple[Backend, MemoryPlan]:
    """The backend and the memory plan; a resumed state takes `held` bytes."""
    solver = config.solver
    n_outputs = n_outputs_for(dataset.classes)
    memory = plan_memory(
        solver.memory_limit + held,
        dataset,
        largest_hot_set(solver.hot_set, dataset.d) if solver.schedule == "block" else 0,
        bytes_per_pattern(config.model, config.data.validation_fraction is not None) * n_outputs,
        n_outputs=n_outputs,
    )
    if cluster is None:
        at_once = memory.rows_at_once
        return LocalBackend(dataset, kernel, memory.resident, solver.threads, at_once), memory
    assert config.data.train is not None
    store = absolute_spec(config.data.train)
    backend = DaskBackend(
        dataset, store, kernel, cluster, solver.memory_limit, n_outputs, memory.rows_at_once
    )
    # The driver keeps no rows.
    return backend, replace(memory, resident=0, solver=memory.resident + memory.solver)


def _problem(
    config: Config,
    dataset: Dataset,
    kernel: Kernel,
    backend: Backend,
    memory: MemoryPlan,
    C: float | np.ndarray,
    margin: np.ndarray | None,
) -> tuple[JointProblem, Schedule]:
    """The problem, and the schedule that solves it."""
    model, solver = config.model, config.solver
    algorithm = "mfw" if model.algorithm == "mfw" else "fw"
    codes, n_outputs = dataset.labels(), n_outputs_for(dataset.classes)
    signs = [codes] if n_outputs == 1 else [one_vs_rest_signs(codes, k) for k in range(n_outputs)]
    problem = JointProblem(
        [
            Problem(backend, y, C, algorithm, solver.stop_rule, margin, model.intercept)
            for y in signs
        ]
    )
    limit = solver.max_iterations  # for each class
    if solver.schedule == "exact":
        space = space_for_columns(memory.solver, dataset.n)
        return problem, ExactSchedule(problem, space, limit)
    return problem, BlockSchedule(problem, kernel, memory.solver, solver.hot_set, limit)


class AlreadyFinished(Exception):
    """The run has nothing left to do; `summary` says how it ended."""

    def __init__(self, summary: dict[str, Any]) -> None:
        super().__init__(summary["status"])
        self.summary = summary


def check_unfinished(
    run_dir: RunDir, state: JointState, solver: SolverConfig, rounds: int, stops: bool
) -> None:
    """Raise `AlreadyFinished` if no work is left at `state`, the newest checkpoint of a run.

    A converged run has work left only under a smaller tolerance or with more rounds; one that
    reached max_iterations only under a larger limit; one that stopped early only if its validation
    scores would not stop it now (`stops`). A state beyond the last round is a UserError.
    """
    if state.round > rounds:
        raise UserError(
            f"{run_dir.path}: is already in round {state.round}, but model.rounds = {rounds}; use "
            "another --run-dir, or --fresh to start over"
        )
    summary: Any = None
    with suppress(OSError, ValueError):  # none, or a torn one: the run had not ended
        summary = json.loads(run_dir.summary.read_text())
    if not isinstance(summary, dict) or not run_dir.model.exists():
        return
    if stops and summary.get("status") == "stopped_early":
        raise AlreadyFinished(summary)
    if summary.get("round", 1) < rounds:
        return
    is_current = summary.get("iterations") == state.iteration
    converged = is_current and summary.get("status") == "converged"
    if converged and _is_converged(summary, solver):
        raise AlreadyFinished(summary)
    if _has_reached_limit(summary, state, solver.max_iterations):
        raise AlreadyFinished(summary)


def _has_reached_limit(summary: dict[str, Any], state: JointState, limit: int) -> bool:
    """Whether the run ended at a limit on its iterations that was no smaller than this one.

    The checkpoint may be older than that end: where the limit lay within a subproblem of the block
    schedule, a run resumes from before it.
    """
    if summary.get("status") != "max_iterations":
        return False
    if summary.get("iterations", 0) < state.resumable_iteration:
        return False  # of before a resume that was killed
    with suppress(LookupError, TypeError):
        return all(
            result.get("converged", False) or result["iterations"] >= limit
            for result in summary.get("classes", [summary])
        )
    return False


def _is_converged(summary: dict[str, Any], solver: SolverConfig) -> bool:
    """Whether the gap recomputed at the end satisfies the current stop rule."""
    rule = solver.stop_rule
    gap = summary.get("true_gap" if rule.absolute else "true_relative_gap")
    return isinstance(gap, int | float) and gap <= (rule.absolute or rule.relative)
