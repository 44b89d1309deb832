"""Slurm jobs, examples of Dask clusters on Slurm, and a Slurm of one node to try them on."""
