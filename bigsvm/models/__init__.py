"""Trained models: decision values, scores, and export to other formats."""
