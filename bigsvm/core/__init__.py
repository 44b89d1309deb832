"""What every other package may use: errors, labels, scaling, compilation, threads.

The bottom layer: nothing in here imports from another package of bigsvm.
"""
