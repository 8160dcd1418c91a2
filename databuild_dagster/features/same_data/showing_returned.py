"""Dagster gets a materialization of each instance that came back in place of a build, as of any publication (rule 4.9)."""

import math
from collections.abc import Collection
from typing import Final

from dagster import DagsterInstance

from databuild_dagster.bindings.display.materialization import LiveRef, report_live
from databuild_dagster.bindings.orchestration.duties import Duty, Place, Work
from databuild_dagster.bindings.registry.instance import DagsterCursors, engine_for
from databuild_dagster.engine.follower import Cursor, LogFollower, apart
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.events import InstancesReturned, names_of
from databuild_dagster.model.refs import asset_of, derive_partition_uuid
from databuild_dagster.model.states import InstanceState

#: Seconds of the work at the end of a build; the next tick goes on.
END_SECONDS: Final = 30.0
_WHY: Final = "An earlier instance, whose code and inputs are equal, came back in place of a build."


def _in_tick(work: Work) -> None:
    show_returned(work.instance, work.deployment.location, work.datasets, head=work.head)


def _at_end(place: Place, seconds: float | None) -> bool | None:
    most_seconds = END_SECONDS if seconds is None else seconds
    return show_returned(place.instance, place.deployment.location, place.datasets, seconds=most_seconds)


@apart("instances that came back could not be shown in Dagster")
def show_returned(
    instance: DagsterInstance,
    location: str,
    datasets: Collection[DatasetSpec],
    *,
    head: int | None = None,
    seconds: float = math.inf,
) -> bool:
    """Materialize in Dagster what came back since the last look and is live; returns whether nothing is left to show."""
    ours = {dataset.asset: dataset for dataset in datasets if dataset.deterministic}
    if not ours:
        return True
    engine = engine_for(instance)
    follower = LogFollower(engine, f"returned_shown/{location}", Cursor, DagsterCursors(instance), head=head)
    if follower.is_at_end:
        return True
    cursor, ends_at = follower.load() or Cursor(), engine.steady() + seconds
    while cursor.seq < follower.head:
        last_seq = follower.last_seq(cursor)
        for event in follower.events(cursor, names_of(InstancesReturned)):
            assert isinstance(event.fact, InstancesReturned), "the names are those of this type"
            if engine.steady() > ends_at:
                return False
            returned = {one.ref: one for one in event.fact.returns if asset_of(one.ref) in ours}
            canonical = engine.queries.canonical.of(list(returned)) if returned else {}
            uuids = {ref: derive_partition_uuid(one.job_run_id, ref) for ref, one in returned.items()}
            live = [
                LiveRef(ref, uuid, returned[ref].manifest.rows, _WHY)
                for ref, uuid in uuids.items()
                if canonical[ref].uuid == uuid and canonical[ref].state is InstanceState.LIVE
            ]
            report_live(instance, ours.values(), live)
            follower.keep(Cursor(event.seq))
        cursor = Cursor(last_seq)
        follower.keep(cursor)
    follower.rest(cursor.seq)
    return True


DUTIES: Final = (
    Duty(
        "show instances that came back",
        _in_tick,
        why="the tick takes instances back in place of builds",
        behind="show taints",
        finish=_at_end,
    ),
)
