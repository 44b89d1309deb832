"""A training, from its config to its summary: the loop, and what keeps it safe."""
