"""Which numbers are valid pattern weights, and how stored weights are identified."""

import hashlib

import numpy as np

# A weight enters squared: outside this range its terms would be negligible, or all others would.
_SMALLEST, _LARGEST = 1e-20, 1e20
WEIGHT_RANGE = f"a weight is 0, or from {_SMALLEST:g} to {_LARGEST:g}"


def valid_weights(values: np.ndarray) -> np.ndarray:
    """A mask of the values that are valid weights."""
    return (values == 0) | ((values >= _SMALLEST) & (values <= _LARGEST))


def weights_digest(values: np.ndarray) -> str:
    """A digest by which stores and checkpoints recognise the same weights."""
    return hashlib.sha256(values.data).hexdigest()[:16]
