"""Reads the source of a Dagster project and lists what to change in it. No code of the project is imported."""
