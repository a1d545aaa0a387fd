"""The base of the library: files of cells, digests, checks of settings, user errors."""
