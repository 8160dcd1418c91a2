"""Dagster's side of databuild: the only floor that knows Dagster.

An author's function becomes a Dagster asset whose step asks the engine before it builds (`decorator`,
`step`); the engine's wishes become Dagster runs (`orchestrator`, `launcher`, `inprocess`). Every name Dagster
keeps private is imported in `dagster_private` and nowhere else.
"""
