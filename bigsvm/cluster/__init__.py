"""Dask clusters: started or joined, their workers examined, their losses noticed."""
