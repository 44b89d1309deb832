"""Frank-Wolfe methods for the dual of the L2-SVM, and the schedules that carry them out."""
