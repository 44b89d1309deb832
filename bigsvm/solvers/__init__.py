"""Frank-Wolfe methods for the dual of the L2-SVM, and the schedules that carry them out."""

# Raised whenever a change alters the bits of a result: a run begun before it is not gone on with.
ARITHMETIC = 4
# `schedule: auto` is exact up to so many patterns, block beyond.
EXACT_UP_TO = 20_000
# Patterns of a kind and class in a hot set of the block schedule.
HOT_SET = 3072
