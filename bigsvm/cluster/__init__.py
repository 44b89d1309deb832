"""Dask clusters: starting or joining one, checking its workers, noticing lost ones."""
