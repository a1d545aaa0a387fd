"""What the whole library stands on: files, digests, settings, mistakes of use."""
