"""When an orchestrator last looked at a location, so that others can tell whether one is running at all.

Beside the heartbeats of launches, outside the log: a tick that finds nothing to do leaves no other trace.
"""

from __future__ import annotations

from databuild_dagster.engine.engine import Engine


def note_tick(engine: Engine, location: str) -> None:
    """An orchestrator of the location is at work now."""
    engine.beat([_name(location)])


def last_tick(engine: Engine, location: str) -> float | None:
    """When the last tick for the location began; None if there never was one."""
    return engine.heartbeats.last([_name(location)]).get(_name(location))


def _name(location: str) -> str:
    return f"orchestrator of {location}"
