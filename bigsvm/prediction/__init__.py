"""Applying a model to any number of rows: inputs, outputs, and Dask clusters."""
