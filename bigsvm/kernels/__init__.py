"""Kernel values, columns and products: all the heavy computing there is."""

from bigsvm.kernels.panels import (
    LANES,
    NAMES,
    Block,
    Kernel,
    add_to_weights,
    block_of,
    columns,
    diagonal,
    fill_panels,
    linear_products,
    panels_of,
    products,
    warm_up,
)
