"""Dagster's side of databuild: the only floor that knows Dagster, in eleven rooms.

From the lowest to the highest: `adapter`, `declare`, `registry`, `claims`, `reading`, `display`, `building`, `arrivals`,
`orchestration`, `authoring`, `migration`. A room imports the rooms before it, and none after it (`.importlinter`).
"""
