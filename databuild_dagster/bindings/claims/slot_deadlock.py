"""When a Dagster run that waits is in the way of what it waits for: it holds the slot that a launch is queued for.

Dagster's limits, of all runs, of a tag or of a pool, know nothing of who waits for whom. A run that waits for what waits
for inputs would hold its slot until its time is up, and their launches, behind it, would not begin before (SPEC 8.3;
decision 0023). So it ends as a run does that misses an input itself; the want that it left has its request built.
"""

import random
from collections.abc import Iterable

from dagster import DagsterInstance, DagsterRunStatus, RunsFilter

from databuild_dagster.bindings.adapter.run_tags import LAUNCH_TAG
from databuild_dagster.bindings.claims.launcher import LAUNCHES_PER_QUERY
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.why.standstill import launches_not_begun

#: So long, at least, a launch has to be in Dagster's queue, and the run to wait; with a slot free it leaves the queue in a
#: few seconds. Some wait twice as long, for one slot is mostly enough: once that is used, nothing stands still.
GIVE_WAY_SECONDS = 30.0

#: A slot is theirs already.
_BEGINNING = (DagsterRunStatus.STARTING, DagsterRunStatus.STARTED)


def patience() -> float:
    """How many seconds one run waits before it gives way."""
    return GIVE_WAY_SECONDS * random.uniform(1, 2)


def in_the_way_of(
    engine: Engine, instance: DagsterInstance, waiting: Iterable[str], patience_seconds: float
) -> tuple[str, ...]:
    """The refs without which what is waited for does not go on, and which have waited so long for a slot.

    None while anything goes on.
    """
    needed_by = launches_not_begun(engine, waiting)
    if not needed_by:
        return ()
    # Of more than these it suffices that none of these goes on.
    launches = list(needed_by)[:LAUNCHES_PER_QUERY]
    records = instance.get_run_records(filters=RunsFilter(tags={LAUNCH_TAG: launches}))
    if any(record.dagster_run.status in _BEGINNING for record in records):
        return ()
    now = engine.clock()
    behind = [
        record.dagster_run.tags[LAUNCH_TAG]
        for record in records
        if record.dagster_run.status is DagsterRunStatus.QUEUED
        and now - record.create_timestamp.timestamp() > patience_seconds
    ]
    return tuple(dict.fromkeys(ref for launch_id in behind for ref in needed_by[launch_id]))
