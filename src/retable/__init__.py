"""Retable: the results tables of language-model pretraining, re-run as one reproducible pipeline."""
