#!/usr/bin/env bash
# The classifier with the oldest scikit-learn and numpy that pyproject.toml allows, in an environment
# of its own: scripts/reliability/oldest_versions.sh [FOLDER]
set -euo pipefail
cd "$(dirname "$0")/../.."
oldest() { grep -oE "\"$1>=[0-9.]+" pyproject.toml | sort -V | tail -n 1 | sed 's/.*>=//'; }
# (the newest of several bounds is the one that binds)
environment=${1:-$(mktemp -d)}
python3 -m venv "$environment"
"$environment/bin/pip" install -q -e ".[test,sklearn]" \
    "scikit-learn==$(oldest scikit-learn).0" "numpy==$(oldest numpy).2"
"$environment/bin/python" -c "import numpy, sklearn; print('scikit-learn', sklearn.__version__, 'numpy', numpy.__version__)"
"$environment/bin/python" -m pytest tests/integration/test_estimator.py tests/integration/test_estimator_outside.py tests/integration/test_estimator_weights.py
