"""A process forked after a training, as `multiprocessing.Pool` makes them on Linux, trains too."""

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.trainings import REPOSITORY

# The usual threading layer, which ends a forked process that starts a parallel loop, and the one
# that does not. The timeouts end a pool that hangs.
PROGRAM = """
import multiprocessing, sys
import numba, numpy as np
from bigsvm import BigSVC, load_model
from bigsvm.kernels import Kernel
from bigsvm.models.double_precision import precise_decisions

rng = np.random.default_rng(0)
x = rng.standard_normal((34_000, 2)).astype(np.float32)
y = (x[:, 0] * x[:, 1] > 0).astype(int)
store, model = sys.argv[1:]

def work(_):
    found = []
    # As many rows as the steps, too, are taken in threads for; then the block schedule.
    for rows, options in ((34_000, {"schedule": "exact", "max_iter": 40}), (600, {})):
        for kernel in ("rbf", "linear"):
            svc = BigSVC(kernel=kernel, C=10, **options).fit(x[:rows], y[:rows])
            found += [svc.dual_coef_, svc.decision_function(x[:300])]
    found.append(BigSVC(schedule="block", C=10).fit(store).dual_coef_)
    found.append(load_model(model).decision_function(np.ones((3, 8))))
    found.append(precise_decisions(Kernel("rbf"), x[:9], x[:5], np.ones((5, 1))))
    return b"".join(array.tobytes() for array in found)

before = work(None)
assert numba.threading_layer() == LAYER, numba.threading_layer()
with multiprocessing.get_context("fork").Pool(2) as pool:
    for after in pool.map_async(work, range(3)).get(120):
        assert after == before
assert work(None) == before  # and here there are threads as before
print("done")
"""


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork")
@pytest.mark.parametrize("layer", ["omp", "workqueue"])
def test_forked_processes_train_and_predict(
    layer: str, stores: dict[str, Path], straight: Path
) -> None:
    program = PROGRAM.replace("LAYER", repr(layer))
    store, model = str(stores["chunks of 500"]), str(straight / "model.safetensors")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, store, model],
        env=os.environ | {"NUMBA_THREADING_LAYER": layer, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout == "done\n", done.stderr[-2000:]
