"""Data sets on disk: opened, read by the shortest way there is, written whole or not at all."""
