"""Files that survive crashes: atomic writes, staging directories, checksummed tensors."""
