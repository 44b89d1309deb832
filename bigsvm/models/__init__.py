"""Trained models: what they decide, how good they are, other programs' formats."""
