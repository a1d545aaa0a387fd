"""Metrics as pure functions of arrays, with confidence intervals and significance tests."""
