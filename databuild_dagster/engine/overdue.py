"""What time does to wants: their time to live ends, and their deadlines pass (SPEC 5.5)."""

from __future__ import annotations

from databuild_dagster.engine.engine import Engine
from databuild_dagster.model import commands as c
from databuild_dagster.model import events as e

#: Wants looked at in one tick; what is left is as overdue in the next.
MAX_WANTS = 1000


def end_overdue(engine: Engine, now: float, actor: str) -> tuple[list[str], list[str]]:
    """(wants that expired, wants whose SLA was found to be missed), recorded. Deadlines first: a want that expires at
    the same time has missed it too.
    """
    expiring, late = engine.queries.overdue_wants(now, MAX_WANTS)
    missed: list[str] = []
    expired: list[str] = []
    if late:
        for event in engine.handle(c.MissSlas(want_ids=tuple(late)), actor=actor).events:
            if isinstance(event.fact, e.WantSlaMissed):
                missed += event.fact.want_ids
    if expiring:
        for event in engine.handle(c.ExpireWants(want_ids=tuple(expiring)), actor=actor).events:
            if isinstance(event.fact, e.WantExpired):
                expired += event.fact.want_ids
    return expired, missed
