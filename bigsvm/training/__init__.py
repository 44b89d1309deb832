"""A training run: the loop, checkpoints, snapshots, the run directory and the summary."""
