"""Frank-Wolfe methods for the dual of the L2-SVM, and the schedules that carry them out."""

# The default of `solver.tolerance` and of BigSVC's `tol`: the gap, as a share of the margin a'Qa.
TOLERANCE = 0.01
# `schedule: auto` is block; but under the paper's stop rule, so that small experiments have the
# paper's iterates, it is exact up to this many patterns.
EXACT_UP_TO = 20_000
# The most patterns in a hot set of the block schedule: a step on them takes some dozens of
# microseconds, and the kernel matrix of a full one is 1 GiB.
HOT_SET = 16_384
