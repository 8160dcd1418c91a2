"""When an orchestrator last looked at a location, so that others can tell whether one is running at all.

Beside the heartbeats of launches, outside the log: a tick that finds nothing to do leaves no other trace. What is long
ago is forgotten there, by whoever ticks.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from databuild_dagster.engine.engine import Engine

#: How long heartbeats are kept: no launch that was not heard of for as long is still thought to be alive.
KEEP_SECONDS = 7 * 24 * 3600.0
#: How often a process forgets the older ones.
FORGET_EVERY_SECONDS = 3600.0


class LastTick(NamedTuple):
    """What an orchestrator left behind."""

    #: When its tick began.
    at: float
    #: When the next one was to begin, as far as was said.
    next_at: float


def note_tick(engine: Engine, location: str, interval_seconds: float = 0.0) -> None:
    """An orchestrator of the location is at work now, and comes again after an interval; 0 if it does not say."""
    now = engine.clock()
    engine.heartbeats.beat([_name(location)], now)
    if interval_seconds:
        engine.heartbeats.beat([_next_name(location)], now + interval_seconds)


def last_tick(engine: Engine, location: str) -> LastTick | None:
    """The last tick for the location; None if there never was one, or not for long."""
    noted = engine.heartbeats.last([_name(location), _next_name(location)])
    at = noted.get(_name(location))
    return None if at is None else LastTick(at, max(at, noted.get(_next_name(location), at)))


def forget_old_heartbeats(engine: Engine) -> None:
    """What was last heard of long ago; now and then, and a bounded number."""
    now = engine.steady()
    if now - engine.memory.of(forget_old_heartbeats, lambda: -inf) >= FORGET_EVERY_SECONDS:
        engine.heartbeats.forget_before(engine.clock() - KEEP_SECONDS)
        engine.memory.put(forget_old_heartbeats, now)


def _name(location: str) -> str:
    return f"orchestrator of {location}"


def _next_name(location: str) -> str:
    return f"next tick of {location}"
