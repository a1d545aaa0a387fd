"""The base of the whole library: files, digests, settings, user errors."""
