"""Metrics as pure functions of arrays, with confidence intervals and significance; numpy and scipy."""
