"""The command `retable`."""
