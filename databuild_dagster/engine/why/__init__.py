"""Answers to why a ref is, or is not, being built; read from the store, and printed by commands and pages."""
