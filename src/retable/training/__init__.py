"""Training with Lightning. No other package imports it."""
