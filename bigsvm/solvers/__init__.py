"""Frank-Wolfe methods for the dual of the L2-SVM, and the schedules that carry them out."""

# Bump when results change bitwise: older checkpoints are then rejected.
ARITHMETIC = 5
# The default of `solver.tolerance` and of BigSVC's `tol`: the gap, as a share of the margin a'Qa.
TOLERANCE = 0.01
# `schedule: auto` is exact up to so many patterns, block beyond.
EXACT_UP_TO = 20_000
# Patterns of a kind and class in a hot set of the block schedule.
HOT_SET = 3072
