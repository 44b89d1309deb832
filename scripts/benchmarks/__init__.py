"""Benchmarks of bigsvm; see README.md in this folder."""
