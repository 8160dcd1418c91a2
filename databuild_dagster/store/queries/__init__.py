"""Queries to the state, one module for each subject."""
