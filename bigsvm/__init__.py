"""Sparse kernel SVMs on data that does not fit in memory."""
