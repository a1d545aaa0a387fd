"""Trained systems in the folders that stages leave: built from their settings, loaded, and used."""
