"""Builds a tuning from its config: patterns, folds and grid."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigsvm.backends.memory import check_chunk_size, resident_set
from bigsvm.config import Config
from bigsvm.config.tune_options import SIGMA, TuneOptions
from bigsvm.core.errors import UserError
from bigsvm.core.version import ARITHMETIC
from bigsvm.core.weights import weights_digest
from bigsvm.kernels import Kernel
from bigsvm.solvers.nodes import WORTH_THREADS
from bigsvm.stores.fingerprint import verified_fingerprint
from bigsvm.stores.store import Dataset
from bigsvm.training.build import initial_pattern, with_gamma
from bigsvm.training.validation import held_out_rows
from bigsvm.training.weights import check_all_classes, class_factors, read_sample_weight
from bigsvm.tuning.cross_validation import (
    FoldTask,
    Grid,
    Split,
    stratified_folds,
    stratified_sample,
)

# For the solutions of the threads, besides kernel matrices and rows.
_SOLUTION_BYTES = 64 * 2**20
_PROGRAM_BYTES = 400 * 2**20  # at most, with compiled code and pyarrow loaded
_SAMPLES = (500, 1000, 2000, 5000, 10_000, 20_000)


@dataclass(frozen=True)
class Tuning:
    """Patterns, folds and grid of a tuning."""

    options: TuneOptions
    grid: Grid
    sigmas: list[float | None]
    index: np.ndarray
    split: Split
    tasks: list[FoldTask]
    identity: dict[str, Any]


def build_tuning(config: Config, dataset: Dataset, log: Callable[[str], None]) -> Tuning:
    """Build the tuning that a config describes; a UserError for what cannot work."""
    config = with_gamma(config, dataset)
    options, solver, model = config.tune, config.solver, config.model
    assert options is not None
    form = model.kernel
    if model.algorithm not in ("fw", "mfw"):
        raise UserError(
            f"model.algorithm = {model.algorithm}: only fw and mfw can be tuned; tune one of "
            "them, and use its C and sigma for the weighted SVM"
        )
    has_width = form.name in ("rbf", "laplacian")
    if options.sigma is not None and not has_width:
        raise UserError(f"tune.sigma: the {form.name} kernel has no sigma; leave it out")
    sigmas: list[float | None] = [*(options.sigma or SIGMA)] if has_width else [None]
    rates = [
        form.rate if sigma is None else type(form)(name=form.name, sigma=sigma).rate
        for sigma in sigmas
    ]
    algorithms: list[str] = [*options.algorithms] if options.algorithms else [model.algorithm]
    labels = dataset.labels()
    index = _without_held_out(config, dataset, log)
    subsample = options.subsample
    if subsample is None:
        subsample = sample_that_fits(config, len(index), dataset.d)
    if subsample != options.subsample:
        log(
            f"tuning on {subsample:,} of {len(index):,} patterns, drawn in the proportions of the "
            "classes: the kernel matrix of all would not fit (tune.subsample, solver.memory_limit)"
        )
    matrices_that_fit(config, min(len(index), subsample or len(index)), dataset.d)
    sample_weight = read_sample_weight(model, dataset)
    check_chunk_size(solver.memory_limit, dataset)
    fingerprint = verified_fingerprint(dataset)
    if subsample is not None:
        index = index[stratified_sample(labels[index], subsample, options.seed)]
    y = labels[index]
    split = _split(config, dataset, y, None if sample_weight is None else sample_weight[index])
    grid = Grid(
        tuple(Kernel(form.name, rate, form.coef0, form.degree) for rate in rates),
        tuple(options.C),
        tuple(algorithms),
        solver.stop_rule,
        options.max_iterations,
        dataset.d if model.C_scale == "normalized" else None,
        model.intercept,
    )
    identity = _identity_of_config(config) | {
        "data": fingerprint[:16],
        "rows": dataset.n,
        "classes": len(dataset.classes),
        "subsample": subsample,
        "sample_weight": None if sample_weight is None else weights_digest(sample_weight),
    }
    tasks = [
        FoldTask(kernel, fold) for kernel in range(len(rates)) for fold in range(options.folds)
    ]
    return Tuning(options, grid, sigmas, index, split, tasks, identity)


def _without_held_out(config: Config, dataset: Dataset, log: Callable[[str], None]) -> np.ndarray:
    """The patterns, without those that `train` holds out: the choice must not depend on them."""
    index, fraction = np.arange(dataset.n), config.data.validation_fraction
    if fraction is None:
        return index
    held_out = held_out_rows(dataset.labels(), dataset.classes, fraction, config.solver.seed)
    log(
        f"tuning without the {len(held_out):,} patterns that data.validation_fraction = "
        f"{fraction:g} holds out"
    )
    return np.delete(index, held_out)


def _identity_of_config(config: Config) -> dict[str, Any]:
    """The parts of the config that must not change when a tuning is resumed."""
    options, solver, model = config.tune, config.solver, config.model
    assert options is not None
    fraction = config.data.validation_fraction
    return {
        "folds": options.folds,
        "seed": options.seed,
        "C_scale": model.C_scale,
        "kernel": model.kernel.name,
        "coef0": model.kernel.coef0,
        "degree": model.kernel.degree,
        "tolerance": str(solver.stop_rule),
        "max_iterations": options.max_iterations,
        "initial": solver.initial if solver.initial != "random" else f"random {solver.seed}",
        "arithmetic": ARITHMETIC,
        "intercept": model.intercept or None,
        "class_weight": model.class_weight,
        "held_out": None if fraction is None else f"{fraction!r}, seed {solver.seed}",
    }


def _split(
    config: Config, dataset: Dataset, y: np.ndarray, sample_weight: np.ndarray | None
) -> Split:
    """The folds, and for each the weights and the initial pattern of the trainings on all others.

    The same as in `train` on those patterns alone: "balanced" counts the classes there, and an
    initial pattern of weight 0 is replaced by the next one with a positive weight.
    """
    options, balance = config.tune, config.model.class_weight
    assert options is not None
    fold_of = stratified_folds(y, options.folds, options.seed)
    initial, class_weight = [], []
    for fold in range(options.folds):
        training = np.flatnonzero(fold_of != fold)
        counts = np.unique(y[training], return_counts=True)[1]
        factors = np.ones(len(counts))
        if balance is not None:
            factors = class_factors(balance, counts, dataset.classes)
        weight = factors[np.unique(y[training], return_inverse=True)[1]]
        if sample_weight is not None:
            weight *= sample_weight[training]
        try:
            check_all_classes(weight, None, y[training], dataset.classes)
        except UserError as error:
            raise UserError(f"tune, outside of fold {fold}: {error}") from error
        first = initial_pattern(config.solver, len(training))
        included = np.flatnonzero(weight)
        first = included[np.searchsorted(included, first) % len(included)]
        initial.append(int(training[first]))
        class_weight.append(factors)
    weighted = None if balance is None else tuple(class_weight)
    return Split(y, fold_of, tuple(initial), sample_weight, weighted)


def sample_that_fits(config: Config, n: int, d: int) -> int | None:
    """How many of n patterns have a kernel matrix that fits; None for all, or if no number fits.

    Depends on the limit alone, not on the memory in use, so that a tuning is resumed on the same
    patterns.
    """
    room = config.solver.memory_limit - _PROGRAM_BYTES - _SOLUTION_BYTES
    if n < WORTH_THREADS and 4 * n * n + 8 * n * d <= room:
        return None
    fitting = [count for count in _SAMPLES if count < n and 4 * count * (count + 2 * d) <= room]
    return max(fitting, default=None)


def matrices_that_fit(config: Config, n: int, d: int) -> int:
    """How many kernel matrices fit into memory; a UserError if none does."""
    room = config.solver.memory_limit - resident_set() - 8 * n * d - _SOLUTION_BYTES
    count = room // (4 * n * n)
    # Beyond WORTH_THREADS each sweep uses all threads, and parallel folds would compete for them.
    if count >= 1 and n < WORTH_THREADS:
        return count
    # The advised number must also fit once all code is compiled.
    later = config.solver.memory_limit - _PROGRAM_BYTES - 8 * n * d - _SOLUTION_BYTES
    room = min(room, later) if later > 0 else max(room, 0)
    most = min(int((room / 4) ** 0.5), WORTH_THREADS - 1)
    takes = f"the kernel matrix of {n:,} patterns takes {4 * n * n / 2**20:,.0f} MiB"
    limit = f"solver.memory_limit = {config.solver.memory_limit / 2**20:,.0f} MiB"
    raise UserError(
        f"tune.subsample: {takes}; {limit} leaves room for {most:,} patterns: take no more, or "
        f"raise solver.memory_limit (beyond {WORTH_THREADS - 1:,} patterns tuning needs a "
        "subsample in any case)"
    )
