"""The base of the library: files of cells, digests, checks of settings, and errors for users."""
