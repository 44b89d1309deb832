"""The stop test against its definition in numpy."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bigsvm.solvers.nodes import pairwise_gap
from bigsvm.solvers.state import EXCLUDED, IDLE, SUPPORT, WORKING

DERIVATIVE = st.floats(-1, 1) | st.just(0.0) | st.just(float("nan"))
PATTERN = st.tuples(DERIVATIVE, st.sampled_from([EXCLUDED, IDLE, WORKING, SUPPORT]))


@settings(deadline=None)  # the first call compiles
@given(st.lists(PATTERN, min_size=1, max_size=12))
def test_gap_and_joining(patterns: list[tuple[float, int]]) -> None:
    gradient = np.array([g for g, _ in patterns])
    role = np.array([r for _, r in patterns], np.int8)
    found, someone_joins = pairwise_gap(gradient, role)
    seen = role >= IDLE
    joining = (role == IDLE) & (gradient <= 0)
    lowest = np.min(gradient[(role > IDLE) | joining], initial=np.inf)
    highest = np.max(gradient[role == SUPPORT], initial=-np.inf)
    if np.isnan(gradient[seen]).any():
        assert np.isnan(found)
    else:
        assert found == highest - lowest
        assert someone_joins == joining.any()
