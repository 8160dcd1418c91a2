"""Copies of manifests and states of lots, which other tools read."""
