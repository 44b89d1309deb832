"""The version of the package, and of the arithmetic that the bits of its results depend on."""

__version__ = "0.2.0"
# Bump when results change bitwise: older checkpoints are then rejected.
ARITHMETIC = 8
