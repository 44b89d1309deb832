"""Data sets on disk (Zarr or HDF5): opening, fast reading, atomic writing."""
