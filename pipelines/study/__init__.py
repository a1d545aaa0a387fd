"""Which cells are to be made, and of what."""
