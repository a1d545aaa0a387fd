"""Runs stages: of a study, and jobs of a sweep."""
