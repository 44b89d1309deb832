"""Benchmarks, reliability checks, the paper's experiments and Slurm jobs; see README.md.

Run from the root of the repository, as in ``python -m scripts.benchmarks.robustness``.
"""

import os
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent


def python_path() -> str:
    """PYTHONPATH for processes that run elsewhere: this checkout first."""
    return os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
