"""Cross-validation over a grid of C and sigma."""
