"""A commented config to start from, with values suggested by the data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil

SAMPLE_ROWS = 2000
UNBALANCED = 0.65  # the share of a class from which on accuracy is not informative
MEMORY_STEP = 256 * 2**20


@dataclass(frozen=True)
class Facts:
    """What a starting config states about the data.

    Attributes
    ----------
    data : dict
        The section `data` of the config.
    rows : int or None
        About how many; None if that is unknown.
    features : int
    shares : dict
        The share of each class in the sample.
    sigma : float
        A suggested width of the Gaussian kernel.
    """

    data: dict[str, Any]
    rows: int | None
    features: int
    shares: dict[Any, float]
    sigma: float


def suggested_sigma(rows: np.ndarray) -> float:
    """Half the median distance of two rows, rounded to two digits.

    For rows of independent features with deviation 1 this is about sqrt(d / 2), which is what
    gamma="scale" comes to in scikit-learn; with features that vary little it is smaller.
    """
    order = np.random.default_rng(0).permutation(len(rows))
    half = len(rows) // 2
    differences = rows[order[:half]].astype(np.float64) - rows[order[half : 2 * half]]
    distances = np.sqrt((differences**2).sum(axis=1))
    apart = distances[distances > 0]
    return float(f"{np.median(apart) / 2:.2g}") if len(apart) else 1.0


def suggested_memory() -> int:
    """Half of the free memory, in steps of 256 MiB."""
    return max(1, psutil.virtual_memory().available // 2 // MEMORY_STEP) * MEMORY_STEP


def suggested_interval(rows: int | None) -> int:
    """Iterations between snapshots: 5,000, fewer for fewer than 100,000 rows, of digits 1, 2, 5.

    A training takes about as many iterations as it has rows, so that there are ten or more.
    """
    most = 5000 if rows is None else min(5000, max(10, rows // 20))
    return max(d * 10**k for k in range(1, 4) for d in (1, 2, 5) if d * 10**k <= most)


def starter_config(facts: Facts, name: str, memory: int) -> str:
    """The config as YAML.

    Parameters
    ----------
    facts : Facts
    name : str
        The name of the run.
    memory : int
        The memory limit in bytes.

    Returns
    -------
    str
    """
    sigma, every = facts.sigma, suggested_interval(facts.rows)
    grid = f"{{from: {sigma / 4:.2g}, to: {sigma * 4:.2g}, count: 5}}"
    shares = ", ".join(f"{label} {100 * share:.1f} %" for label, share in facts.shares.items())
    rows = "an unknown number of" if facts.rows is None else f"{facts.rows:,}"
    lines = [
        f"# {rows} rows, {facts.features} features; classes: {shares}",
        "# Written by `bigsvm init`; `bigsvm train` with this file trains, and resumes.",
        "",
        "data:",
        *_lines(facts.data),
        "",
        "model:",
        "  C: 10                      # change first: larger fits the training rows more closely",
        "  # Half the median distance of two rows. Smaller: a more detailed decision, more support",
        "  # vectors. `bigsvm tune` with this file chooses C and sigma by cross-validation.",
        f"  kernel: {{name: rbf, sigma: {sigma:g}}}",
    ]
    if max(facts.shares.values()) >= UNBALANCED and len(facts.shares) == 2:
        lines += [
            "  # One class is rare. This weighs both alike; instead,",
            "  # `threshold: balanced` only moves the decision.",
            "  class_weight: balanced",
        ]
    lines += [
        "",
        "solver:",
        f"  memory_limit: {memory // 2**20}MiB         # half of what was free on this machine",
        "  # max_iterations: 1000000  # or time_limit: 2h; what is there then is saved",
        "",
        "run:",
        f"  dir: {_inline(f'runs/{name}')}",
        f"  snapshot_every: {every:<10} # a model every {every:,} iterations: bigsvm evaluate",
        "",
        "tune:                        # bigsvm tune, then train runs/...-tune/best.yaml",
        "  C: {from: 0.1, to: 100, count: 4}",
        f"  sigma: {grid}",
        "  folds: 5",
        "  subsample: 5000",
    ]
    return "\n".join(lines) + "\n"


def _lines(section: dict[str, Any], depth: int = 1) -> list[str]:
    """The keys of a section, one on a line."""
    lines = []
    for key, value in section.items():
        inner = isinstance(value, dict)
        lines.append("  " * depth + (f"{key}:" if inner else f"{key}: {_inline(value)}"))
        lines += _lines(value, depth + 1) if inner else []
    return lines


def _inline(value: Any) -> str:
    """A value on one line; JSON is YAML."""
    return json.dumps(value, ensure_ascii=False)
