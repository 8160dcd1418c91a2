"""Deterministic simulation: a seed becomes a storm of virtual processes over one real SQLite store, and the same story again."""
