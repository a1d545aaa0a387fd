"""Loading and use of trained systems from the cells that stages write."""
