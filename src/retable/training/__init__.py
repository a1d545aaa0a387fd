"""Training with Lightning. No other package of Retable imports `retable.training`."""
