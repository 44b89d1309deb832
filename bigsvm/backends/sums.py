"""Kernel products with rows that may come in pieces, as all backends make them."""

from collections.abc import Callable, Iterable

import numpy as np

from bigsvm.backends.gathered import with_coefficients
from bigsvm.files.sealed import InPieces
from bigsvm.kernels import Block, Kernel, add_to_weights, linear_products, products

Blocks = Callable[[], Iterable[Block]]


def add_sums(
    kernel: Kernel, blocks: Blocks, rows: np.ndarray | InPieces, coef: np.ndarray, sums: np.ndarray
) -> None:
    """Add to `sums` (sums, n) what coefficients (q, sums) make of the kernel values of the rows.

    Each piece is another sweep over `blocks()`; but for the linear kernel, of which one is enough.
    """
    if kernel.name == "linear":
        weights = weights_of(rows, coef)
        for block in blocks():
            linear_products(block, weights, sums)
        return
    for piece, its_coef in with_coefficients(rows, coef):
        for block in blocks():
            products(kernel, block, piece, its_coef, sums)


def weights_of(rows: np.ndarray | InPieces, coef: np.ndarray) -> np.ndarray:
    """The weight vectors (sums, d) of the linear kernel."""
    weights = np.zeros((coef.shape[1], rows.shape[1]))
    for piece, its_coef in with_coefficients(rows, coef):
        add_to_weights(piece, its_coef, weights)
    return weights


def as_columns(coef: np.ndarray) -> np.ndarray:
    """Coefficients (q,) as the one column (q, 1) that they are; (q, sums) as they are."""
    return coef[:, None] if coef.ndim == 1 else coef
