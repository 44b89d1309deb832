"""Frank-Wolfe methods for the dual of the L2-SVM, and the schedules that carry them out."""

# Raised whenever a change alters the bits of a result: a run begun before it is not gone on with.
ARITHMETIC = 1
