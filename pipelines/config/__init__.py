"""Locations, schemas and checks of configurations. Imports nothing else from pipelines/."""
