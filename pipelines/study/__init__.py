"""Derive a study's cells with their configurations and code, write the study's DVC project, and explain stale cells."""
