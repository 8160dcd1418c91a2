"""When an orchestrator last looked at a location, and with which limits, so that others can tell what it does next.

Beside the heartbeats of launches, outside the log: a tick that finds nothing to do leaves no other trace. What is long
ago is forgotten there, by whoever ticks.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from math import inf
from typing import NamedTuple

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.judge import LEASE_SECONDS
from databuild_dagster.engine.tick_pass import TickLimits

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


def note_tick(engine: Engine, location: str, limits: TickLimits, interval_seconds: float = 0.0) -> None:
    """An orchestrator of the location works now within these limits, and comes again after an interval; 0 if it does not say.

    A command that ticks beside a regular orchestrator keeps that one's limits: they are the next tick's.
    """
    now = engine.clock()
    names = [_name(location)]
    if interval_seconds or not _is_expected(engine, location, now):
        names.append(_limits_prefix(location) + json.dumps(asdict(limits)))
    engine.heartbeats.beat(names, now)
    if interval_seconds:
        engine.heartbeats.beat([_next_name(location)], now + interval_seconds)


def _is_expected(engine: Engine, location: str, now: float) -> bool:
    """Whether an orchestrator that comes regularly is due, or late by a lease at most."""
    next_at = engine.heartbeats.last([_next_name(location)]).get(_next_name(location))
    return next_at is not None and now - next_at <= LEASE_SECONDS


def last_tick(engine: Engine, location: str) -> LastTick | None:
    """The last tick for the location; None if there never was one, or not for long."""
    noted = engine.heartbeats.last([_name(location), _next_name(location)])
    at = noted.get(_name(location))
    return None if at is None else LastTick(at, max(at, noted.get(_next_name(location), at)))


def limits_of(engine: Engine, location: str) -> TickLimits:
    """The limits that the location's orchestrator noted last; the defaults where none has ticked for long."""
    prefix = _limits_prefix(location)
    noted = engine.heartbeats.newest(prefix)
    return TickLimits() if noted is None else TickLimits(**json.loads(noted.removeprefix(prefix)))


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


def _limits_prefix(location: str) -> str:
    """The limits follow in the name: a heartbeat has no other text. The quotes end the location's name."""
    return f"limits of {json.dumps(location)}: "
