"""Attacks on trainings, damaged files, long runs, exported models: what the guarantees rest on."""
