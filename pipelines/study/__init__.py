"""Derive a study's cells, their configurations and their code, write its DVC project, and explain stale cells."""
