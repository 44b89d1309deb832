"""C and sigma by cross-validation."""
