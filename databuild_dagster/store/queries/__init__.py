"""Queries to the state, a module for each subject."""
