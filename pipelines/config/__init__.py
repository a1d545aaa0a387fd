"""Locations, schemas and checks of configurations.

This package imports no other package of pipelines/.
"""
